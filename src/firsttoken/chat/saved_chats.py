"""Conversations of the terminal chat on this disk, one JSON file each, that no other user can read."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from firsttoken.chat.history import History, Turn

_TITLE = 60  # characters


@dataclass(frozen=True, slots=True)
class SavedChat:
    path: Path
    title: str
    model: str
    system: str
    turns: list[Turn] = field(repr=False)

    def history(self) -> History:
        return History(self.system, list(self.turns))


class SavedChats:
    """The newest come first. What cannot be read is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_path(self) -> Path:
        """For a conversation that begins now."""
        name = time.strftime("%Y%m%d-%H%M%S")
        return self._folder / f"{name}-{time.time_ns() % 1_000_000_000:09d}.json"

    def keep(self, path: Path, history: History, model: str, title: str = "") -> None:
        """Writes it whole or not at all. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        turns = [{"question": turn.question, "answer": turn.answer} for turn in history.turns]
        content = {"title": title, "model": model, "system": history.system, "turns": turns}
        unfinished = path.with_suffix(".part")
        with open(unfinished, "w", encoding="utf-8", opener=_private) as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
        unfinished.replace(path)

    def all(self) -> list[SavedChat]:
        paths = sorted(self._folder.glob("*.json"), reverse=True)
        return [chat for path in paths if (chat := _read(path))]

    def search(self, words: str) -> list[tuple[int, SavedChat, str]]:
        """Those in which the words occur, with their place in `all` and a line around the first find."""
        found = []
        for number, chat in enumerate(self.all(), 1):
            for text in (chat.title, *(text for turn in chat.turns for text in (turn.question, turn.answer))):
                position = text.lower().find(words.lower())
                if position >= 0:
                    start = max(0, position - 30)
                    found.append((number, chat, " ".join(text[start : position + len(words) + 30].split())))
                    break
        return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(path: Path) -> SavedChat | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        turns = [Turn(str(turn["question"]), str(turn["answer"])) for turn in content["turns"]]
        title = str(content["title"]) or title_of(turns)
        return SavedChat(path, title, str(content["model"]), str(content["system"]), turns)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def title_of(turns: list[Turn]) -> str:
    """The beginning of the first question."""
    first = " ".join(turns[0].question.split()) if turns else ""
    return first if len(first) <= _TITLE else first[: _TITLE - 1] + "…"
