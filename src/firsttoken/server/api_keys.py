"""The keys that clients may send: those of the command line, and those of a file that may change while we run."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from firsttoken.errors import ConfigError

log = logging.getLogger("firsttoken.server")

_LOOK = 1.0  # seconds between looks at the file
_MAX_FILE = 1024 * 1024  # bytes


def read_keys(path: str) -> tuple[str, ...]:
    """One key a line; empty lines and lines that begin with # are passed over. Raises ConfigError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
        lines = [line.strip() for line in data.decode("ascii").splitlines()]
    except OSError as error:
        raise ConfigError(f"The API key file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The API key file {path} holds more than ASCII characters.") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if len(data) > _MAX_FILE or any(" " in key or "\t" in key for key in keys):
        raise ConfigError(f"The API key file {path} must hold one key a line, without spaces, in at most 1 MiB.")
    if not keys:
        raise ConfigError(f"The API key file {path} holds no key.")
    return keys


class ApiKeys:
    """Knows keys by their digests: of equal length, and all compared, so that timing tells nothing of them.

    The file is read again within a second of its change. While what is there cannot be used, the keys before stay.
    """

    def __init__(self, keys: Iterable[str], path: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError."""
        self._own = [_digest(key.encode()) for key in keys]
        self._path = path
        self._clock = clock
        self._looked = clock()
        self._stamp = self._read_stamp()
        self._filed = [] if path is None else [_digest(key.encode()) for key in read_keys(path)]

    def __contains__(self, key: bytes) -> bool:
        self._refresh()
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, known) for known in (*self._own, *self._filed)]
        return any(matches)

    def _refresh(self) -> None:
        now = self._clock()
        if self._path is None or now - self._looked < _LOOK:
            return
        self._looked = now
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._filed = [_digest(key.encode()) for key in read_keys(self._path)]
        except ConfigError as error:
            log.error("%s The keys read before stay.", error)
        else:
            log.info("the API key file was read again: %d keys", len(self._filed))

    def _read_stamp(self) -> tuple[int, int, int] | None:
        try:
            found = Path(self._path or "").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
