"""The disk that models are read from: its kind, its room, and how fast it reads past the page cache."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_WEIGHTS = {".safetensors", ".gguf", ".bin", ".pt"}
_BLOCK = 8 * 1024 * 1024
_THREADS = 4  # as loading does: one thread does not fill a fast disk's queue
_SECONDS = 1.0
_MOST = 4 * 1024**3  # bytes; a fast disk has shown its rate by then
_LOOKED_AT = 20_000  # files; a home folder full of sources is no place to search in for long


@dataclass(frozen=True, slots=True)
class Disk:
    """One reading. What the system does not tell is None."""

    folder: str  # the nearest that exists
    filesystem: str | None  # "ext4"
    free: int  # bytes
    rate: float | None  # bytes a second of a large file there
    measured_with: str | None  # the file
    why_unmeasured: str | None


def model_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the hub's package keeps models: HF_HUB_CACHE, hub under HF_HOME, or ~/.cache/huggingface/hub."""
    if own := environ.get("HF_HUB_CACHE"):
        return Path(own).expanduser()
    if home := environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", "/"), ".cache")
    return Path(cache).expanduser() / "huggingface" / "hub"


def read_disk(place: Path, *, mounts: Path = Path("/proc/self/mounts"), seconds: float = _SECONDS) -> Disk:
    """`place` is a model's folder, a folder of them, or one file. Reads for `seconds` from its largest weight file."""
    folder = place
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    largest = max(_weight_files(place), key=lambda path: path.stat().st_size, default=None) if place.exists() else None
    rate, why = None, None
    if largest is None:
        why = "there is no weight file to read"
    else:
        try:
            rate = read_rate(largest, seconds)
        except OSError as error:
            why = error.strerror or str(error)
    return Disk(
        folder=str(folder),
        filesystem=_filesystem(folder.resolve(), mounts),
        free=shutil.disk_usage(folder).free,
        rate=rate,
        measured_with=None if rate is None or largest is None else str(largest),
        why_unmeasured=why,
    )


def read_rate(path: Path, seconds: float = _SECONDS, threads: int = _THREADS) -> float:
    """Bytes a second of `path`, read in blocks of 8 MiB by several threads past the page cache.

    Raises OSError where the filesystem has no such reads (tmpfs), or the file is too short to tell.
    """
    size = path.stat().st_size // _BLOCK * _BLOCK
    if size < threads * _BLOCK:
        raise OSError(0, f"{path.name} is too short to tell")
    share = size // threads // _BLOCK * _BLOCK
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    start = time.perf_counter()
    try:
        with ThreadPoolExecutor(threads) as pool:
            parts = [pool.submit(_read_part, descriptor, one * share, share, start + seconds) for one in range(threads)]
            done = sum(part.result() for part in parts)
    finally:
        os.close(descriptor)
    return done / (time.perf_counter() - start)


def _read_part(descriptor: int, offset: int, length: int, until: float) -> int:
    """Bytes read of one region, before `until`; one block at least."""
    with mmap.mmap(-1, _BLOCK) as buffer:  # its pages are aligned, as direct reads want
        done = 0
        while done < min(length, _MOST // _THREADS) and (done == 0 or time.perf_counter() < until):
            done += os.preadv(descriptor, [buffer], offset + done)
        return done


def _weight_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    looked = 0
    for folder, _, names in os.walk(place):
        for name in names:
            looked += 1
            path = Path(folder, name)
            if path.suffix in _WEIGHTS and path.is_file():
                yield path
        if looked > _LOOKED_AT:
            return


def _filesystem(folder: Path, mounts: Path) -> str | None:
    """The kind of the mount that holds `folder`: the longest mount point that is above it, the last of equals."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    best: tuple[int, str | None] = (-1, None)
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        where = Path(point.replace("\\040", " "))
        if (where == folder or where in folder.parents) and len(str(where)) >= best[0]:
            best = (len(str(where)), kind)
    return best[1]
