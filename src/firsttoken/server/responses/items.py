"""The items of a response's output, and the events that tell of them as they grow."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import from_json

from firsttoken.server.sse import json_text

Status = Literal["in_progress", "completed", "incomplete"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of item calls its things."""

    type: Literal["message", "reasoning", "function_call"]
    prefix: str  # of ids
    events: str  # `.delta` and `.done` follow
    text: str  # the field of what grows
    part: str | None  # the type of the one content part that it grows in


MESSAGE = Kind("message", "msg", "response.output_text", "text", "output_text")
REASONING = Kind("reasoning", "rs", "response.reasoning_text", "text", "reasoning_text")
CALL = Kind("function_call", "fc", "response.function_call_arguments", "arguments", None)


class EventWriter:
    """Numbers events from 0."""

    def __init__(self) -> None:
        self._number = 0

    def write(self, type: str, fields: dict[str, Any]) -> bytes:
        whole = {"type": type, "sequence_number": self.next(), **fields}
        return b"event: %b\ndata: %b\n\n" % (type.encode(), json_text(whole))

    def next(self) -> int:
        number = self._number
        self._number += 1
        return number


@dataclass(slots=True)
class Item:
    """One item while it grows; `name` and `call_id` are a function call's."""

    kind: Kind
    index: int
    writer: EventWriter
    name: str = ""
    call_id: str = ""
    id: str = field(init=False)
    logprobs: list[Any] = field(default_factory=list, init=False)
    _texts: list[str] = field(default_factory=list, init=False)
    _delta: tuple[bytes, bytes, bytes] = field(init=False)  # around its number and its text

    def __post_init__(self) -> None:
        self.id = f"{self.kind.prefix}_{uuid.uuid4().hex}"
        type = f"{self.kind.events}.delta".encode()
        head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (type, type)
        tail = b',"logprobs":[]}\n\n' if self.kind is MESSAGE else b"}\n\n"
        self._delta = (head, b"," + json_text(self._place())[1:-1] + b',"delta":', tail)

    @property
    def is_whole(self) -> bool:
        """False for a call whose arguments are no JSON: nobody can run it."""
        if self.kind is not CALL:
            return True
        try:
            from_json(self._text())
        except ValueError:
            return False
        return True

    def opening(self) -> bytes:
        added = self.writer.write(
            "response.output_item.added", {"output_index": self.index, "item": self.object("in_progress")}
        )
        if self.kind.part is None:
            return added
        return added + self.writer.write("response.content_part.added", {**self._place(), "part": self._part("")})

    def delta(self, text: str, logprobs: list[Any]) -> bytes:
        """`logprobs` are a message's."""
        self._texts.append(text)
        head, middle, tail = self._delta
        if logprobs:
            self.logprobs += logprobs
            tail = b',"logprobs":%b}\n\n' % json_text(logprobs)
        return b"%b%d%b%b%b" % (head, self.writer.next(), middle, json_text(text), tail)

    def closing(self, status: Status) -> bytes:
        text = self._text()
        done: dict[str, Any] = {**self._place(), self.kind.text: text}
        if self.kind is MESSAGE:
            done["logprobs"] = self.logprobs
        elif self.kind is CALL:
            done["name"] = self.name
        events = self.writer.write(f"{self.kind.events}.done", done)
        if self.kind.part is not None:
            events += self.writer.write("response.content_part.done", {**self._place(), "part": self._part(text)})
        item = {"output_index": self.index, "item": self.object(status)}
        return events + self.writer.write("response.output_item.done", item)

    def object(self, status: Status) -> dict[str, Any]:
        """The item itself, with what it holds so far."""
        made: dict[str, Any] = {"id": self.id, "type": self.kind.type, "status": status}
        text = self._text()
        if self.kind is CALL:
            return made | {"call_id": self.call_id, "name": self.name, "arguments": text}
        content = [] if status == "in_progress" else [self._part(text)]
        if self.kind is REASONING:
            return made | {"summary": [], "content": content}
        return made | {"role": "assistant", "content": content}

    def _text(self) -> str:
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return self._texts[0] if self._texts else ""

    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self.id, "output_index": self.index}
        return place if self.kind.part is None else place | {"content_index": 0}

    def _part(self, text: str) -> dict[str, Any]:
        if self.kind is REASONING:
            return {"type": self.kind.part, "text": text}
        return {"type": self.kind.part, "text": text, "annotations": [], "logprobs": self.logprobs if text else []}
