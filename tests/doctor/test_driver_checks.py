"""Which driver holds the card, and whether torch and the driver go together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firsttoken.doctor.checks.driver import check_cuda, check_driver, check_library, check_modules
from firsttoken.machine.driver import Driver
from tests.doctor.good_machine import DRIVER, SOFTWARE, SYSTEM

BARE = replace(DRIVER, version=None, cuda=None, modules=(), module_version=None, trouble="Driver Not Loaded")


@pytest.mark.parametrize(("module", "name"), [("nouveau", "nouveau"), ("nova_core", "nova")])
def test_an_open_driver_that_holds_the_card_is_named_with_the_way_out(module: str, name: str) -> None:
    found = check_modules(replace(BARE, modules=(module,)))
    assert (found.verdict, found.reading) == ("bad", f"{name} is loaded")
    assert f"blacklist {module}" in found.fix


def test_a_card_without_any_driver_is_bad_and_no_card_is_no_fault() -> None:
    assert check_modules(BARE).verdict == "bad"
    assert "1 NVIDIA card on the bus" in check_modules(BARE).reading
    assert [
        one.verdict for one in check_driver(replace(BARE, on_bus=()), SOFTWARE, replace(SYSTEM, device_files=()))
    ] == ["unread"]
    assert [one.verdict for one in check_driver(DRIVER, SOFTWARE, SYSTEM)] == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("trouble", "container", "fix"),
    [
        ("Driver/library version mismatch", None, "restart the machine"),
        ("the package nvidia-ml-py is not installed", None, "pip install nvidia-ml-py"),
        ("NVML Shared Library Not Found", "docker", "--gpus all"),
        ("Unknown Error", None, "nvidia-smi"),
    ],
)
def test_a_library_that_does_not_answer_has_a_fix_for_its_trouble(
    trouble: str, container: str | None, fix: str
) -> None:
    driver = replace(DRIVER, version=None, trouble=trouble)
    found = check_library(driver, replace(SYSTEM, container=container))
    assert (found.verdict, found.reading) == ("bad", trouble)
    assert fix in found.fix


@pytest.mark.parametrize(
    ("version", "cuda", "verdict", "words"),
    [
        ("580.159.04", "13.0", "ok", "580.159.04 serves"),
        ("570.86.15", "13.0", "bad", "needs driver 580 or newer"),
        ("535.54.03", "12.8", "ok", "535.54.03 serves"),
        ("520.61", "12.8", "bad", "needs driver 525 or newer"),
        ("580.159.04", None, "bad", "a build for CPUs"),
        (None, "13.0", "unread", "not known"),
    ],
)
def test_the_driver_must_serve_the_cuda_of_torch(
    version: str | None, cuda: str | None, verdict: str, words: str
) -> None:
    found = check_cuda(replace(DRIVER, version=version), replace(SOFTWARE, torch_cuda=cuda))
    assert found.verdict == verdict
    assert words in f"{found.reading}"


def test_a_driver_that_the_kernel_loaded_is_there_even_where_its_library_is_silent() -> None:
    driver = Driver(None, None, "Unknown Error", ("nvidia",), "580.1", ())
    assert check_modules(driver).verdict == "ok"
