"""What was before: written and on the disk before anything is changed, so that a crash loses nothing."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from firsttoken.errors import ConfigError

DEFAULT = Path("/var/lib/firsttoken/tuning.json")  # the machine's, not a user's: its settings are everybody's


class Entry(msgspec.Struct, frozen=True):
    """One setting: what it was, and what it was to become."""

    kind: str
    target: str
    label: str
    before: str
    after: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    boot: str
    entries: list[Entry]


class Journal:
    """The file at `path`. `boot` names this start of the machine: no setting here outlives one."""

    def __init__(self, path: Path, boot: str) -> None:
        self.path, self._boot = path, boot

    def read(self) -> tuple[list[Entry], bool]:
        """The entries in the order of their changes, and whether this start of the machine made them.

        Raises ConfigError for a file that is none of ours.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return [], True
        try:
            file = msgspec.json.decode(content, type=_File)
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{self.path} is no journal of `firsttoken doctor apply` ({error}); look at it."
            ) from None
        if file.version != 1:
            raise ConfigError(f"{self.path} was written by a newer firsttoken; restore with that one.")
        return file.entries, file.boot == self._boot

    def write(self, entries: Sequence[Entry]) -> None:
        """Replaces the content in one move that a crash cannot tear, and waits for the disk; without entries the file
        goes. Raises OSError."""
        if not entries:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(_File(1, self._boot, list(entries))), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name too must be on the disk
        finally:
            os.close(folder)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps every other apply and restore out. Raises ConfigError where one is at work, OSError without rights."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError("Another `firsttoken doctor apply` or `restore` is at work; wait for it.") from None
            yield


def this_boot(root: Path = Path("/")) -> str:
    """The kernel's name for this start of the machine; empty where it has none."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
