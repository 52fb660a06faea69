"""Prompts from files: our own JSONL, and ShareGPT's JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from firsttoken.bench.scenario import Dialogue, FixedDialogues, Turn
from firsttoken.errors import ConfigError

T = TypeVar("T")


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of our own format: exactly one of `prompt` and `messages`."""

    prompt: str | list[int] | None = None
    messages: list[dict[str, str]] | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False


class _Said(msgspec.Struct):
    who: str = msgspec.field(name="from")
    value: str


class _Conversation(msgspec.Struct):
    conversations: list[_Said] = []


def read_jsonl(path: Path, max_tokens: int = 256) -> FixedDialogues:
    """A JSON object a line: {"prompt": text or ids} or {"messages": [...]}, and "max_tokens", "ignore_eos" at will.

    `max_tokens` holds for lines without one. Raises ConfigError that names the line at fault.
    """
    dialogues: list[Dialogue] = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line.strip():
            continue
        entry = _decode(line, _Line, f"line {number} of {path}")
        if (entry.prompt is None) == (entry.messages is None) or not (entry.prompt or entry.messages):
            raise ConfigError(f"line {number} of {path} needs either a prompt or messages, not empty")
        limit = entry.max_tokens if entry.max_tokens is not None else max_tokens
        if limit < 1:
            raise ConfigError(f"line {number} of {path}: max_tokens must be at least 1")
        turn = Turn(
            messages=entry.messages or [],
            prompt=entry.prompt,
            max_tokens=limit,
            ignore_eos=entry.ignore_eos,
            prompt_tokens=len(entry.prompt) if isinstance(entry.prompt, list) else None,
        )
        dialogues.append(Dialogue(turns=[turn]))
    return _not_empty(dialogues, path)


def read_sharegpt(path: Path, max_tokens: int = 256, turns: int | None = None) -> FixedDialogues:
    """ShareGPT's list of {"conversations": [{"from": "human" or "gpt", "value": text}]}, as dialogues.

    The file's answers stand in the history, so every server sees the same one. Conversations that do not alternate
    from a human's turn on are left out, as are turns after `turns`.
    """
    entries = _decode(_read(path), list[_Conversation], str(path))
    dialogues = [dialogue for entry in entries if (dialogue := _dialogue(entry, max_tokens, turns)) is not None]
    return _not_empty(dialogues, path)


def _dialogue(entry: _Conversation, max_tokens: int, turns: int | None) -> Dialogue | None:
    said = entry.conversations
    system: list[dict[str, str]] = []
    if said and said[0].who == "system":
        system = [{"role": "system", "content": said[0].value}]
        said = said[1:]
    made: list[Turn] = []
    for place in range(0, len(said), 2):
        if said[place].who not in ("human", "user"):
            return None
        reply = said[place + 1] if place + 1 < len(said) else None
        if reply is not None and reply.who not in ("gpt", "assistant", "chatgpt", "bard", "bing"):
            return None
        message = {"role": "user", "content": said[place].value}
        made.append(
            Turn(
                messages=[*(system if place == 0 else []), message],
                max_tokens=max_tokens,
                reply=reply.value if reply is not None else None,
            )
        )
    made = [turn for turn in made if turn.messages[-1]["content"].strip()][:turns]
    return Dialogue(turns=made) if made else None


def _not_empty(dialogues: list[Dialogue], path: Path) -> FixedDialogues:
    if not dialogues:
        raise ConfigError(f"{path} holds no prompts")
    return FixedDialogues(dialogues=dialogues)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None


def _decode(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} is not as it should be: {error}") from None
