"""What every download shares: where it goes, whether it fits, and its bar. Standard library only."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from firsttoken.errors import DownloadError


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository, before it is fetched."""

    name: str
    size: int  # bytes


class Progress(Protocol):
    """What shows a download. Calls come from one thread at a time."""

    def start(self, label: str, total: int) -> None:
        """Named before the first byte: what is fetched, and its bytes in all."""

    def advance(self, done: int) -> None:
        """Bytes that are there so far."""

    def finish(self) -> None:
        """The download has ended, well or not."""


class TextProgress:
    """A bar on a terminal; on anything else a line at the start and at each tenth."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._label, self._total, self._tenth, self._began = "", 0, 0, 0.0

    def start(self, label: str, total: int) -> None:
        self._label, self._total, self._tenth, self._began = label, total, 0, time.monotonic()
        self._write(f"Fetching {label}: {megabytes(total)}\n")

    def advance(self, done: int) -> None:
        share = min(1.0, done / self._total) if self._total else 1.0
        if self._stream.isatty():
            bar = "█" * round(share * 30)
            speed = done / max(time.monotonic() - self._began, 1e-3)
            self._write(f"\r{bar:░<30} {share:4.0%} of {megabytes(self._total)}, {megabytes(int(speed))}/s \033[K")
        elif int(share * 10) > self._tenth:
            self._tenth = int(share * 10)
            self._write(f"  {share:.0%}\n")

    def finish(self) -> None:
        if self._stream.isatty():
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def check_space(folder: Path, needed: int, what: str, elsewhere: str) -> None:
    """Raises DownloadError, with the numbers, where `needed` bytes do not fit beside what `folder` holds.

    `elsewhere` names the flag or the variable that chooses another place.
    """
    existing = folder
    while not os.path.lexists(existing):  # unlike Path.exists, no error where we may not look
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DownloadError(
            f"{what} needs {megabytes(needed)} of disk in {folder}, but {megabytes(free)} are free; make room, or "
            f"choose another place with {elsewhere}."
        )


@contextmanager
def shown(progress: Progress, label: str, total: int, *folders: Path, interval: float = 0.2) -> Iterator[None]:
    """Shows a download that someone else writes into `folders`, by the bytes that lie there."""
    progress.start(label, total)
    ended = threading.Event()

    def watch() -> None:
        most = 0  # what was unpacked moves away, and a bar that goes back looks like a loss
        while not ended.wait(interval):
            most = max(most, min(total, sum(map(bytes_in, folders))))
            progress.advance(most)

    watcher = threading.Thread(target=watch, name="download-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        progress.finish()


def bytes_in(folder: Path) -> int:
    """Bytes of all files below a folder that others are writing to."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # renamed or removed since the listing
                continue
    return total


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, is that no room was left."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def megabytes(size: int) -> str:
    """Bytes for people: 98.4 MB, 8.04 GB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
