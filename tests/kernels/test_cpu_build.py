"""Compiling the CPU kernels: once, for all, and with one sentence where it cannot be done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firsttoken.kernels.cpu_build import BuildError, StoreError, build, find_compiler
from firsttoken.kernels.cpu_ops import CpuKernels, load_kernels

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler")


def environ(cache: Path, **changes: str) -> dict[str, str]:
    return {**os.environ, "FIRSTTOKEN_CACHE": str(cache), **changes}


@needs_compiler
def test_a_second_build_takes_the_first_ones_library(tmp_path: Path) -> None:
    first = build("plain", environ=environ(tmp_path))
    made = first.stat().st_mtime_ns
    assert build("plain", environ=environ(tmp_path)) == first
    assert first.stat().st_mtime_ns == made
    assert list(first.parent.iterdir()) == [first]
    assert CpuKernels(first, threads=2).threads == 2


@needs_compiler
def test_two_processes_may_build_at_once(tmp_path: Path) -> None:
    code = "from firsttoken.kernels.cpu_build import build; print(build('plain'))"
    runs = [
        subprocess.Popen([sys.executable, "-c", code], env=environ(tmp_path), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    libraries = {run.communicate(timeout=60)[0].strip() for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert len(libraries) == 1
    CpuKernels(Path(libraries.pop()))


def test_without_a_compiler_the_user_is_told_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="install gcc"):
        build(environ=environ(tmp_path, PATH=str(tmp_path), CC=""))


def test_a_compiler_that_fails_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'fatal error: no headers' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(BuildError, match=r"broken-cc could not compile .*no headers.*CC"):
        build(environ=environ(tmp_path, CC=str(broken)))
    assert not list((tmp_path / "kernels").iterdir())


@needs_compiler
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreError, match="FIRSTTOKEN_CACHE"):
        build("plain", environ=environ(blocked))


@needs_compiler
def test_without_a_cache_that_can_be_written_they_are_compiled_for_this_process_alone(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    kernels, why_not = load_kernels(environ(blocked, FIRSTTOKEN_CPU_ARCH="plain"))
    assert kernels is not None, why_not
    assert not kernels.library.exists()


def test_a_full_disk_is_not_taken_for_a_bad_compiler(tmp_path: Path) -> None:
    linker = tmp_path / "cc"
    linker.write_text("#!/bin/sh\necho 'final link failed: No space left on device' >&2\nexit 1\n")
    linker.chmod(0o755)
    with pytest.raises(StoreError, match="No space left on device"):
        build("plain", environ=environ(tmp_path, CC=str(linker)))


def test_an_unknown_instruction_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="native, avx2, plain"):
        build("avx9", environ=environ(tmp_path))
