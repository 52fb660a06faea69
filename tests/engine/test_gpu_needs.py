"""What a machine with a GPU may lack, each told in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.engine.gpu_needs import why_no_cuda, why_no_launchers
from firsttoken.machine.gpu import Gpu


def _gpu(driver: str) -> Gpu:
    return Gpu(index=0, name="NVIDIA A10G", memory_total=24 << 30, memory_free=23 << 30, driver=driver)


def test_a_machine_without_a_gpu_lacks_nothing() -> None:
    assert why_no_cuda([], "2.13.0+cpu", None) is None


@pytest.mark.parametrize(
    ("driver", "cuda", "named"),
    [("580.65", None, "build for CPUs"), ("550.54", "13.0", "580 or newer"), ("580.65", "13.0", "torch.cuda.init")],
)
def test_an_unusable_gpu_is_explained(driver: str, cuda: str | None, named: str) -> None:
    reason = why_no_cuda([_gpu(driver)], "2.13.0", cuda)
    assert reason is not None
    assert named in reason
    assert "NVIDIA A10G" in reason
    assert "--device cpu" in reason


@pytest.mark.parametrize(
    ("compiler", "header", "named"),
    [(False, True, "a C compiler to start"), (True, False, "Python's header files to start"), (False, False, "and")],
)
def test_what_triton_lacks_is_named(compiler: bool, header: bool, named: str, tmp_path: Path) -> None:
    if header:
        (tmp_path / "Python.h").touch()
    reason = why_no_launchers({}, lambda name: f"/bin/{name}" if compiler else None, tmp_path)
    assert reason is not None
    assert named in reason
    assert "gcc" in reason


def test_a_compiler_named_by_the_environment_is_the_one_that_counts(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    found = {"gcc": "/usr/bin/gcc", "my-cc": None}
    assert why_no_launchers({}, found.get, tmp_path) is None
    assert why_no_launchers({"CC": "my-cc"}, found.get, tmp_path) is not None
