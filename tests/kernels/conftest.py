"""Compiled CPU kernels, one build an instruction set."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest
import torch

from firsttoken.kernels.cpu_build import build, find_compiler
from firsttoken.kernels.cpu_ops import CpuKernels

_ARCHES = ("native", "avx2", "plain") if platform.machine() in ("x86_64", "AMD64") else ("native", "plain")


@pytest.fixture(scope="session", params=_ARCHES)
def built(request: pytest.FixtureRequest) -> CpuKernels:
    if find_compiler() is None:
        pytest.skip("needs a C compiler")
    return CpuKernels(build(request.param))


@pytest.fixture
def kernels(built: CpuKernels) -> Iterator[CpuKernels]:
    """The library on two threads, whatever a test sets."""
    torch.manual_seed(0)
    built.set_threads(2)
    yield built
    built.set_threads(1)
