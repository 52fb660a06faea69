"""A response as a stream of events; the last one's object is the whole answer, streamed or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from firsttoken.errors import RequestError
from firsttoken.server.answer_parts import Part, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from firsttoken.server.choice import Choice, Piece, TokenEntry
from firsttoken.server.generation import Usage
from firsttoken.server.responses.items import CALL, MESSAGE, REASONING, EventWriter, Item, Kind, Status

_STATUS: dict[str | None, Status] = {"length": "incomplete"}


class ResponseEvents:
    """`Chunks` of one response. `head` is what its object holds from the start."""

    def __init__(self, head: dict[str, Any], *, logprobs: Callable[[list[TokenEntry]], list[Any]] | None) -> None:
        self._head = head
        self._logprobs = logprobs
        self._writer = EventWriter()
        self._items: list[Item] = []
        self._output: list[dict[str, Any]] = []  # items that are whole
        self._open: Item | None = None
        self._waiting: list[TokenEntry] = []  # their text is still held back
        self._status: Status = "completed"

    def opening(self, choice: Choice) -> bytes:
        response = {"response": self._object("in_progress")}
        return self._writer.write("response.created", response) + self._writer.write("response.in_progress", response)

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        if self._logprobs is not None:
            self._waiting += piece.entries
        if choice.parser is None:
            return self._grow(MESSAGE, piece.text)
        events = b"".join([self._part(part) for part in piece.parts])
        if piece.parts:
            self._waiting = []
        return events

    def ending(self, choice: Choice) -> bytes:
        self._status = _STATUS.get(choice.finish_reason, "completed")
        events = b"" if self._items else self._switch(MESSAGE)
        return events + self._close(self._status)

    def closing(self, usage: Usage) -> bytes:
        return self._writer.write(f"response.{self._status}", {"response": self.whole(usage)})

    def failure(self, error: RequestError) -> bytes:
        told = {"code": error.code, "message": error.message, "param": error.param}
        failed = self._object("failed") | {"error": {"code": "server_error", "message": error.message}}
        return self._writer.write("error", told) + self._writer.write("response.failed", {"response": failed})

    def whole(self, usage: Usage) -> dict[str, Any]:
        """The response once its one choice has ended."""
        made = self._object(self._status)
        made["completed_at"] = int(time.time()) if self._status == "completed" else None
        made["incomplete_details"] = {"reason": "max_output_tokens"} if self._status == "incomplete" else None
        made["usage"] = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        return made

    def _part(self, part: Part) -> bytes:
        match part:
            case TextDelta(text):
                return self._grow(MESSAGE, text)
            case ReasoningDelta(text):
                return self._grow(REASONING, text)
            case ToolCallStart(_, id, name):
                return self._switch(CALL, name=name, call_id=id)
            case ToolCallDelta(_, arguments):
                return self._grow(CALL, arguments)

    def _grow(self, kind: Kind, text: str) -> bytes:
        events = b"" if self._open is not None and self._open.kind is kind else self._switch(kind)
        assert self._open is not None
        logprobs: list[Any] = []
        if kind is MESSAGE and self._logprobs is not None:
            logprobs, self._waiting = self._logprobs(self._waiting), []
        return events + self._open.delta(text, logprobs)

    def _switch(self, kind: Kind, **call: str) -> bytes:
        events = self._close("completed")
        self._open = Item(kind, len(self._items), self._writer, **call)
        self._items.append(self._open)
        return events + self._open.opening()

    def _close(self, status: Status) -> bytes:
        item, self._open = self._open, None
        if item is None:
            return b""
        if not item.is_whole:
            status = "incomplete"
        self._output.append(item.object(status))
        return item.closing(status)

    def _object(self, status: str) -> dict[str, Any]:
        return {**self._head, "status": status, "output": list(self._output)}
