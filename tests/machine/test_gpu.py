"""Reading the driver's list of GPUs, with a fake driver."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from firsttoken.machine.gpu import Gpu, read_gpus

GIB = 1024**3


class FakeDriver:
    """Answers with a text, or raises."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str]) -> str:
        self.commands.append(list(command))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_each_gpu_is_read_with_its_memory_and_driver() -> None:
    driver = FakeDriver("NVIDIA H200, 143771, 143000, 580.95.05\nNVIDIA A10G, 23028, 1024, 580.95.05\n")
    first, second = read_gpus(driver, {})
    assert first == Gpu(0, "NVIDIA H200", 143771 * 1024**2, 143000 * 1024**2, "580.95.05")
    assert (second.index, second.name, second.memory_free) == (1, "NVIDIA A10G", GIB)
    assert driver.commands[0][0] == "nvidia-smi"


@pytest.mark.parametrize(
    "failure",
    [
        FileNotFoundError("nvidia-smi"),
        subprocess.CalledProcessError(9, "nvidia-smi"),
        subprocess.TimeoutExpired("x", 10),
    ],
)
def test_no_driver_or_a_broken_one_means_no_gpu(failure: Exception) -> None:
    assert read_gpus(FakeDriver(failure), {}) == []


def test_a_driver_that_prints_something_else_means_no_gpu() -> None:
    assert read_gpus(FakeDriver("No devices were found\n")) == []


def test_memory_that_the_driver_does_not_tell_is_zero() -> None:
    (gpu,) = read_gpus(FakeDriver("NVIDIA GB10, [N/A], [N/A], 580.95.05\n"))
    assert (gpu.memory_total, gpu.memory_free) == (0, 0)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_the_environment_hides_do_not_count(hidden: str) -> None:
    driver = FakeDriver("NVIDIA H200, 143771, 143000, 580.95.05\n")
    assert read_gpus(driver, {"CUDA_VISIBLE_DEVICES": hidden}) == []
    assert len(read_gpus(driver, {"CUDA_VISIBLE_DEVICES": "0"})) == 1
