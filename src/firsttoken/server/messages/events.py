"""A message as a stream of events, and as one object."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from firsttoken.errors import RequestError
from firsttoken.server.answer_parts import Part, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from firsttoken.server.choice import Choice, Piece
from firsttoken.server.error_handlers import status_of
from firsttoken.server.generation import Usage
from firsttoken.server.messages.errors import error_object
from firsttoken.server.sse import Identity, json_text

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
# For each kind of block: the type of its deltas, and the field of them.
_DELTAS = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")} | {
    "tool_use": ("input_json_delta", "partial_json")
}


class MessageEvents:
    """`Chunks` of one message; `whole` is the answer that is not streamed."""

    def __init__(self, identity: Identity, *, request_id: str, prompt_tokens: int, max_tokens: int) -> None:
        self._identity = identity
        self._request_id = request_id
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[str] = []  # of the open block, the last one
        self._before = b""  # a delta of the open block up to its text
        self._stop: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}

    def opening(self, choice: Choice) -> bytes:
        usage = _usage(Usage(self._prompt_tokens, 0, 0))
        return _event({"type": "message_start", "message": self._object(usage)}) + _PING

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        if choice.parser is None:
            return self._grow("text", piece.text)
        return b"".join([self._part(part) for part in piece.parts])

    def ending(self, choice: Choice) -> bytes:
        self._stop = _stop(choice, self._max_tokens)
        return self._close()

    def closing(self, usage: Usage) -> bytes:
        return _event({"type": "message_delta", "delta": self._stop, "usage": _usage(usage)}) + _STOP

    def failure(self, error: RequestError) -> bytes:
        return _event(error_object(status_of(error), error.message, self._request_id))

    def whole(self, usage: Usage) -> dict[str, Any]:
        """The message once its one choice has ended."""
        return self._object(_usage(usage))

    def _part(self, part: Part) -> bytes:
        match part:
            case TextDelta(text):
                return self._grow("text", text)
            case ReasoningDelta(text):
                return self._grow("thinking", text)
            case ToolCallStart(_, id, name):
                return self._open({"type": "tool_use", "id": id, "name": name, "input": {}})
            case ToolCallDelta(_, arguments):
                return self._grow("tool_use", arguments)

    def _grow(self, kind: str, text: str) -> bytes:
        if not text:
            return b""
        events = b""
        if not self._before or self._blocks[-1]["type"] != kind:
            events = self._open({"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {}))
        self._texts.append(text)
        return events + self._before + json_text(text) + b"}}\n\n"

    def _open(self, block: dict[str, Any]) -> bytes:
        events = self._close()
        index = len(self._blocks)
        self._blocks.append(block)
        kind, field = _DELTAS[block["type"]]
        delta = b'{"type":"%b","%b":' % (kind.encode(), field.encode())
        head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":' % index
        self._before = head + delta
        return events + _event({"type": "content_block_start", "index": index, "content_block": block})

    def _close(self) -> bytes:
        if not self._before:
            return b""
        block, text = self._blocks[-1], "".join(self._texts)
        self._texts, self._before = [], b""
        if block["type"] == "tool_use":
            block["input"] = _input(text)
        else:
            block[block["type"]] = text
        return _event({"type": "content_block_stop", "index": len(self._blocks) - 1})

    def _object(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._identity.response_id,
            "type": "message",
            "role": "assistant",
            "model": self._identity.model,
            "content": self._blocks,
            **self._stop,
            "usage": usage,
        }


def _event(content: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (content["type"].encode(), json_text(content))


def _stop(choice: Choice, max_tokens: int) -> dict[str, Any]:
    if choice.finish_reason == "tool_calls":
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if choice.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": choice.stop_string}
    reason = "end_turn"
    if choice.finish_reason == "length":
        reason = "max_tokens" if choice.tokens >= max_tokens else "model_context_window_exceeded"
    return {"stop_reason": reason, "stop_sequence": None}


def _input(arguments: str) -> dict[str, Any]:
    """Empty where a stream's call broke off; without a stream such a call is text."""
    try:
        given = from_json(arguments or "{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _usage(usage: Usage) -> dict[str, Any]:
    """Cached tokens are counted apart here, not among the input's."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "service_tier": "standard",
    }
