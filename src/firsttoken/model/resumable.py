"""One file over HTTP that goes on where an earlier try stopped, in this process or another."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

import httpx

from firsttoken.errors import DownloadError

_TRIES = 5  # in a row without a new byte
_TIMEOUT = httpx.Timeout(30, connect=10)  # seconds
_SUFFIX = ".resume.incomplete"


def partial_of(target: Path) -> Path:
    """Where a file's beginning waits."""
    return target.with_name(target.name + _SUFFIX)


def fetch_resumable(
    url: str,
    target: Path,
    *,
    size: int | None,
    sha256: str | None,
    headers: Mapping[str, str] | None = None,
    pause: float = 1.0,
) -> None:
    """Makes `target` the file at `url`, of `size` bytes and with this SHA-256 where they are known.

    A broken connection is taken up again, after `pause` seconds and then longer ones. Whatever stops it, the bytes that
    came stay in `partial_of(target)`, unless they are wrong. A second process waits for the first.

    Raises DownloadError where the content is wrong, httpx.HTTPError where the server or the network fails, OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(target)
    with partial.open("ab", buffering=0) as file:  # unbuffered: a killed process leaves all that it received
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0, os.SEEK_END)  # another process may have gone on with it meanwhile
        if target.exists():
            partial.unlink(missing_ok=True)
            return
        _complete(url, file, size, headers or {}, pause)
        done = file.tell()
        if (size is not None and done != size) or (sha256 is not None and _sha256(partial) != sha256):
            partial.unlink()
            raise DownloadError(f"{target.name} came with a wrong size or checksum, so it was thrown away; try again.")
        partial.replace(target)


def _complete(url: str, file: FileIO, size: int | None, headers: Mapping[str, str], pause: float) -> None:
    failures = 0
    while True:
        before = file.tell()
        if size is not None and before >= size:
            return
        try:
            _append(url, file, headers)
            return
        except httpx.TransportError:
            failures = 0 if file.tell() > before else failures + 1
            if failures >= _TRIES:
                raise
            time.sleep(pause * (1 + failures))


def _append(url: str, file: FileIO, headers: Mapping[str, str]) -> None:
    done = file.tell()
    sent = {**headers, "Accept-Encoding": "identity"}
    if done:
        sent["Range"] = f"bytes={done}-"
    with httpx.stream("GET", url, headers=sent, follow_redirects=True, timeout=_TIMEOUT) as response:
        if done and response.status_code == 416:  # nothing is behind what we have
            return
        response.raise_for_status()
        if done and response.status_code != 206:  # the whole comes again
            file.truncate(0)
        for chunk in response.iter_raw():
            file.write(chunk)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
