"""The /commands of the terminal chat."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from firsttoken.chat import terminal_words as words
from firsttoken.chat.attachments import LARGEST, MOST, Attachment, read
from firsttoken.chat.history import History
from firsttoken.chat.language import Words
from firsttoken.chat.line import ReadLine
from firsttoken.chat.saved_chats import SavedChat
from firsttoken.chat.settings import Settings
from firsttoken.chat.terminal import TerminalChat

_SHOWN = 20  # kept conversations in a list


class _Command(NamedTuple):
    arguments: str
    help: Words


COMMANDS = {
    "/help": _Command("", words.HELP),
    "/new": _Command("", words.NEW),
    "/regenerate": _Command("", words.REGENERATE),
    "/edit": _Command("[N]", words.EDIT),
    "/system": _Command("[TEXT|none]", words.SYSTEM),
    "/file": _Command("[PATH|none]", words.FILE),
    "/set": _Command("[NAME VALUE]", words.SET),
    "/model": _Command("[NAME]", words.MODEL),
    "/history": _Command("", words.HISTORY),
    "/save": _Command("[TITLE]", words.SAVE),
    "/load": _Command("[N]", words.LOAD),
    "/search": _Command("WORDS", words.SEARCH),
    "/export": _Command("[FILE]", words.EXPORT),
    "/quit": _Command("", words.QUIT),
}


class Commands:
    """Runs a line that begins with a /; False means to leave. What is no command after all is asked as a question."""

    def __init__(self, chat: TerminalChat, read_line: ReadLine) -> None:
        self._chat = chat
        self._read_line = read_line

    def __call__(self, line: str) -> bool | None:
        name, _, rest = line.partition(" ")
        if name in ("/quit", "/exit"):
            return False
        if name in COMMANDS:
            run: Callable[[str], None] = getattr(self, "_" + name[1:])
            run(rest.strip())
        elif near := get_close_matches(name, COMMANDS, n=1, cutoff=0.75):
            self._chat.note(words.MEANT, name=name, near=near[0])
        elif re.fullmatch(r"/[a-z]+", line):
            self._chat.note(words.NO_COMMAND, name=name)
        else:
            self._chat.ask(line)
        return None

    def _help(self, _: str) -> None:
        for name, command in COMMANDS.items():
            self._chat.note(f"{name + ' ' + command.arguments:<22}{self._chat.say(command.help)}")
        self._chat.note(words.KEYS)

    def _new(self, _: str) -> None:
        self._chat.begin(History(self._chat.history.system))
        self._chat.note(words.BEGUN)

    def _regenerate(self, _: str) -> None:
        turns = self._chat.history.turns
        if not turns:
            self._chat.note(words.NOTHING_YET)
            return
        self._again(len(turns), turns[-1].question)

    def _edit(self, given: str) -> None:
        turns = self._chat.history.turns
        if not turns:
            self._chat.note(words.NOTHING_YET)
            return
        number = _number(given) if given else len(turns)
        if number is None or not 1 <= number <= len(turns):
            self._chat.note(words.NO_TURN, number=given)
            return
        try:
            question = self._read_line("> ", turns[number - 1].question).strip()
        except (EOFError, KeyboardInterrupt):
            return
        if question:
            self._again(number, question)

    def _again(self, number: int, question: str) -> None:
        """Asks in the place of that question; what was there comes back if there is no answer."""
        history = self._chat.history
        before = list(history.turns), history.first
        history.cut_back(number - 1)
        if self._chat.turn(question) is None:
            history.turns[:], history.first = before

    def _system(self, text: str) -> None:
        history = self._chat.history
        if text:
            history.set_system("" if text == "none" else text)
        if history.system:
            self._chat.note(words.SYSTEM_IS, text=history.system)
        else:
            self._chat.note(words.NO_SYSTEM)

    def _file(self, given: str) -> None:
        if given == "none":
            self._chat.files.clear()
        elif given:
            self._add_file(Path(given).expanduser())
            return
        for file in self._chat.files:
            self._tell_file(file)
        if not self._chat.files:
            self._chat.note(words.NO_FILES)

    def _add_file(self, path: Path) -> None:
        if len(self._chat.files) == MOST:
            self._chat.note(words.TOO_MANY_FILES, most=MOST)
            return
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST + 1)
        except OSError as error:
            self._chat.note(words.CANNOT_READ, path=path, reason=error.strerror)
            return
        text = read(content)
        if len(content) > LARGEST:
            self._chat.note(words.FILE_TOO_LARGE, path=path, limit=LARGEST >> 10)
        elif text is None:
            self._chat.note(words.NOT_TEXT, path=path)
        else:
            self._chat.files.append(Attachment(path.name, text))
            self._tell_file(self._chat.files[-1])

    def _tell_file(self, file: Attachment) -> None:
        count = self._chat.count(file.text)
        size = "" if count is None else self._chat.say(words.FILE_SIZE, count=count)
        self._chat.note(words.FILE_ADDED, name=file.name, size=size)

    def _set(self, given: str) -> None:
        names = [field.name for field in fields(Settings)]
        name, _, value = given.partition(" ")
        if not name:
            for known in names:
                self._show_setting(known)
        elif name == "default":
            self._chat.settings = Settings()
            self._set("")
        elif name not in names:
            self._chat.note(words.NO_SETTING, name=name)
        elif not value:
            self._show_setting(name)
        else:
            self._change(name, value.strip())

    def _change(self, name: str, value: str) -> None:
        kind, parse = _KINDS.get(name, (words.A_NUMBER, _finite))
        try:
            parsed = None if value == "default" else parse(value)
        except (ValueError, OSError):
            self._chat.note(words.WRONG_VALUE, name=name, kind=self._chat.say(kind))
            return
        self._chat.settings = replace(self._chat.settings, **{name: parsed})
        self._show_setting(name)

    def _show_setting(self, name: str) -> None:
        value = asdict(self._chat.settings)[name]
        if value is None:
            recommended = asdict(self._chat.model.recommended)[name]
            default = words.OWN_DEFAULT if recommended is not None else words.SERVERS_DEFAULT
            value = self._chat.say(default, value=recommended)
        elif name == "json_schema":
            value = json.dumps(value, ensure_ascii=False)
        self._chat.note(words.SETTING, name=name, value=value)

    def _model(self, name: str) -> None:
        models = self._chat.models()
        if not name:
            for model in models:
                mark = "*" if model.name == self._chat.model.name else " "
                size = f", {self._chat.say(words.TOKENS, count=model.context)}" if model.context else ""
                self._chat.note(f"{mark} {model.name}{size}")
            return
        for model in models:
            if model.name == name:
                self._chat.model = model
                self._chat.note(words.MODEL_IS, name=name)
                return
        self._chat.note(words.NO_MODEL, name=name)

    def _history(self, _: str) -> None:
        history = self._chat.history
        if history.system:
            self._chat.note(words.SYSTEM_IS, text=history.system)
        if not history.turns:
            self._chat.note(words.NOTHING_YET)
        for number, turn in enumerate(history.turns, 1):
            unsent = f" {self._chat.say(words.NOT_SENT)}" if number <= history.first else ""
            self._chat.note(f"\n{number}{unsent}> {turn.question}\n{turn.answer}")
        if history.known_tokens and self._chat.model.context:
            self._chat.note("")
            self._chat.note(words.USE, used=history.known_tokens, context=self._chat.model.context)

    def _save(self, title: str) -> None:
        if self._chat.saved is None:
            self._chat.note(words.NOT_KEPT)
        elif not self._chat.history.turns:
            self._chat.note(words.NOTHING_YET)
        else:
            self._chat.title = title or self._chat.title
            self._chat.keep()
            self._chat.note(words.SAVED, title=self._chat.shown_title)

    def _load(self, given: str) -> None:
        chats = self._chat.saved.all() if self._chat.saved else []
        if not chats:
            self._chat.note(words.NO_SAVED)
        elif not given:
            for number, chat in enumerate(chats[:_SHOWN], 1):
                self._list(number, chat, chat.title)
        else:
            number = _number(given) or 0
            if not 1 <= number <= len(chats):
                self._chat.note(words.NO_SUCH_SAVED, number=given)
                return
            chat = chats[number - 1]
            self._chat.begin(chat.history(), chat.path, chat.title)
            self._history("")
            self._chat.note(words.LOADED, title=chat.title, turns=len(chat.turns))

    def _search(self, text: str) -> None:
        found = self._chat.saved.search(text) if self._chat.saved and text else []
        for number, chat, line in found[:_SHOWN]:
            self._list(number, chat, f"{chat.title}: …{line}…" if line not in chat.title else chat.title)
        if not found:
            self._chat.note(words.NOT_FOUND, words=text)

    def _list(self, number: int, chat: SavedChat, text: str) -> None:
        day = f"{chat.path.name[:4]}-{chat.path.name[4:6]}-{chat.path.name[6:8]}"
        self._chat.note(f"{number:>3}  {day}  {text}")

    def _export(self, given: str) -> None:
        history = self._chat.history
        if not history.turns:
            self._chat.note(words.NOTHING_YET)
            return
        path = Path(given or "chat.md").expanduser()
        parts = [f"# {self._chat.shown_title}"]
        parts += [f"> {line}" if line else ">" for line in history.system.splitlines()]
        for turn in history.turns:
            parts += [f"## {self._chat.say(words.YOU)}", turn.question, f"## {self._chat.model.name}", turn.answer]
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write("\n\n".join(parts) + "\n")
        except FileExistsError:
            self._chat.note(words.FILE_EXISTS, path=path)
        except OSError as error:
            self._chat.note(words.CANNOT_WRITE, path=path, reason=error.strerror)
        else:
            self._chat.note(words.EXPORTED, path=path)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # which JSON cannot say
        raise ValueError
    return value


def _schema(path: str) -> dict[str, object]:
    schema = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    if not isinstance(schema, dict):
        raise ValueError
    return schema


_KINDS: dict[str, tuple[Words, Callable[[str], Any]]] = {
    "top_k": (words.A_WHOLE_NUMBER, int),
    "max_tokens": (words.A_WHOLE_NUMBER, int),
    "seed": (words.A_WHOLE_NUMBER, int),
    "json_schema": (words.A_SCHEMA, _schema),
}
