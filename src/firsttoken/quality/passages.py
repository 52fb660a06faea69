"""The texts that quality is judged on. They ship with the package, under its own licence (see texts/NOTICE.txt)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

KINDS = ("english", "chinese", "code")


@dataclass(frozen=True, slots=True)
class Passage:
    """One text to read."""

    kind: str  # of KINDS
    text: str


def passages() -> list[Passage]:
    """Every text, in the order of KINDS and names."""
    names = sorted(each.name for each in files(__package__).joinpath("texts").iterdir())
    return [Passage(kind, _read(name)) for kind in KINDS for name in names if name.startswith(f"{kind}-")]


def questions() -> list[str]:
    """Short tasks whose greedy answers are compared."""
    return _read("questions.txt").splitlines()


def _read(name: str) -> str:
    return files(__package__).joinpath("texts", name).read_text(encoding="utf-8")
