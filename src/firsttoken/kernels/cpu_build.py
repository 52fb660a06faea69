"""Compiles the CPU kernels once with the machine's own C compiler, and keeps the result in the user's cache."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from firsttoken.cache import CACHE_VARIABLE, cache_folder
from firsttoken.errors import ConfigError, FirstTokenError

SOURCES = Path(__file__).parent / "cpu"
ARCHES = {  # what the code may use: this machine's best, the x86 base of today, or any CPU's
    "native": ("-march=native",),
    "avx2": ("-mavx2", "-mfma", "-mf16c"),
    "plain": (),
}
_FLAGS = (
    *("-std=gnu11", "-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"),
)
_TIMEOUT = 120.0  # seconds; the compile takes two


class BuildError(FirstTokenError):
    """The kernels cannot be compiled here; everything still runs, through torch."""


class StoreError(BuildError):
    """They can be compiled, but not kept where they were to be."""


def find_compiler(environ: Mapping[str, str] = os.environ) -> str | None:
    """The C compiler to use: $CC, else the first of cc, gcc and clang."""
    names = (environ.get("CC", ""), "cc", "gcc", "clang")
    return next((path for name in names if name and (path := shutil.which(name, path=environ.get("PATH")))), None)


def build(arch: str = "native", *, environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> Path:
    """The shared library for `arch`, compiled if `folder` (by default in the user's cache) lacks it.

    Several processes may do this at once. Raises BuildError, in one sentence, without a compiler or where it fails,
    and StoreError where `folder` cannot hold it.
    """
    if arch not in ARCHES:
        raise BuildError(f"FIRSTTOKEN_CPU_ARCH is {arch!r}; use one of {', '.join(ARCHES)}.")
    compiler = find_compiler(environ)
    if compiler is None:
        raise BuildError("No C compiler was found; install gcc (or set CC) for kernels that decode six times faster.")
    flags = (*_FLAGS, *ARCHES[arch])
    if folder is None:
        try:
            folder = cache_folder(environ) / "kernels"
        except ConfigError as error:
            raise StoreError(str(error)) from error
    library = folder / f"cpu-{arch}-{_fingerprint(compiler, flags)}.so"
    try:
        if library.exists():
            return library
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:  # same file system: the move below is atomic
            made = Path(scratch) / "cpu.so"
            try:
                _compile(compiler, flags, made)
            except BuildError:
                if arch != "native":
                    raise
                _compile(compiler, _FLAGS, made)  # some compilers do not know the machine that they run on
            made.replace(library)
    except OSError as error:
        raise StoreError(
            f"The CPU kernels cannot be stored in {folder} ({error.strerror}); choose another place with "
            f"{CACHE_VARIABLE}."
        ) from error
    return library


def _compile(compiler: str, flags: tuple[str, ...], target: Path) -> None:
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    command = [compiler, *flags, *sources, "-o", str(target), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{compiler} took over {_TIMEOUT:.0f} s for the CPU kernels; try another with CC.") from error
    if "No space left" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise BuildError(f"{compiler} could not compile the CPU kernels ({reason.strip()}); try another with CC.")


def _fingerprint(compiler: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    digest.update("\0".join((compiler, *flags, version.stdout, _cpu_model())).encode())
    return digest.hexdigest()[:16]


def _cpu_model() -> str:
    """What -march=native depends on: one cache may serve several machines."""
    wanted = ("model name", "flags", "CPU part", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(line for line in lines if line.startswith(wanted))
