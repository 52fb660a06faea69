"""Streamed answers: server-sent events whose bytes are prepared once a request, with only the text filled in.

The engine's dispatcher adds to each choice's text; one coroutine a connection sends what is there. While a slow
reader holds `send` up, texts pile up in the choice and leave as one chunk: a connection holds at most its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from firsttoken.errors import RequestError
from firsttoken.server.answer_parts import Part, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from firsttoken.server.choice import Choice, Piece, TokenEntry
from firsttoken.server.error_handlers import FAILED, EngineFault, error_object, status_of
from firsttoken.server.generation import Generation, Usage, until_disconnect

log = logging.getLogger("firsttoken.server")

_encode = msgspec.json.Encoder().encode
_DONE = b"data: [DONE]\n\n"
_NO_LOGPROBS = b'},"logprobs":null,"finish_reason":null'  # between a delta and the end of its choice
# JSON leaves these as they are, and clients that cut lines as Unicode does would cut an event in two.
_LINE_ENDS = tuple((char.encode(), b"\\u%04x" % ord(char)) for char in "\x85\u2028\u2029")


def json_text(value: Any) -> bytes:
    """JSON on one line by any reading; a string has its quotes."""
    encoded = _encode(value)
    for raw, escaped in _LINE_ENDS:
        if raw in encoded:
            encoded = encoded.replace(raw, escaped)
    return encoded


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk and answer of one request carries."""

    response_id: str
    created: int  # Unix seconds
    model: str
    fingerprint: str

    def fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


ReadUsage = Callable[[], Usage]


class Chunks(Protocol):
    """The events of one kind of answer."""

    def opening(self, choice: Choice) -> bytes:
        """What comes before a choice's first piece; called once for each, in order."""

    def piece(self, choice: Choice, piece: Piece) -> bytes: ...

    def ending(self, choice: Choice) -> bytes: ...

    def closing(self, usage: Usage) -> bytes:
        """What comes once every choice has ended."""

    def failure(self, error: RequestError) -> bytes:
        """The last event of a stream that cannot go on."""


class _Frame:
    """The bytes around a choice: all that is the same in every chunk of a request."""

    def __init__(self, identity: Identity, kind: str, include_usage: bool, running: ReadUsage | None) -> None:
        """`running`: every chunk carries the usage so far."""
        fields = _encode(identity.fields(kind))[:-1]
        self._head = b"data: " + fields + b',"choices":['
        self._include_usage = include_usage
        self._running = running
        self._usage = b',"usage":null}\n\n' if include_usage else b"}\n\n"

    def opens(self, index: int) -> bytes:
        return self._head + b'{"index":%d,' % index

    def closes(self, token_ids: Sequence[int] | None = None, more: bytes = b"") -> bytes:
        """The end of a choice, and of its chunk; `more` are fields of the chunk."""
        end = b"}]" if token_ids is None else b',"token_ids":' + _encode(token_ids) + b"}]"
        if self._running is None:
            return end + more + self._usage
        return end + more + b',"usage":' + _encode(usage_object(self._running())) + b"}\n\n"

    def closing(self, usage: Usage) -> bytes:
        if not self._include_usage:
            return _DONE
        return self._head + b'],"usage":' + _encode(usage_object(usage)) + b"}\n\n" + _DONE


class ChatChunks:
    """Chunks of `chat.completion.chunk`: the role, then deltas of content, then the reason for the end.

    A choice with a parser has a chunk a part; logprobs of the tokens behind them are in the first of a piece.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        include_usage: bool = False,
        logprobs: Callable[[list[TokenEntry]], Any] | None = None,
        running: ReadUsage | None = None,
        prompt: list[int] | None = None,
    ) -> None:
        """`running`: every chunk carries the usage so far. `prompt`: ids to tell, and each piece's after them."""
        self._frame = _Frame(identity, "chat.completion.chunk", include_usage, running)
        self._logprobs = logprobs
        self._prompt = prompt
        self._before: dict[int, bytes] = {}
        self._changes = running is not None or prompt is not None or logprobs is not None
        self._same = _NO_LOGPROBS + self._frame.closes()  # what follows a delta, chunk for chunk

    def opening(self, choice: Choice) -> bytes:
        opens = self._frame.opens(choice.index)
        self._before[choice.index] = opens + b'"delta":{"content":'
        content = b'""' if choice.parser is None else b"null"  # there may come none
        told = self._prompt is not None and choice.index == 0
        more = b',"prompt_token_ids":' + _encode(self._prompt) if told else b""
        return (
            opens + b'"delta":{"role":"assistant","content":' + content + _NO_LOGPROBS + self._frame.closes(more=more)
        )

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        if choice.parser is not None:
            return self._parts(choice, piece)
        return self._before[choice.index] + json_text(piece.text) + self._after(piece)

    def _parts(self, choice: Choice, piece: Piece) -> bytes:
        if len(piece.parts) == 1 and isinstance(piece.parts[0], TextDelta):
            return self._before[choice.index] + json_text(piece.parts[0].text) + self._after(piece)
        opens = self._frame.opens(choice.index) + b'"delta":{'
        first, *others = [_delta(part) for part in piece.parts] or [b""]
        chunk = opens + first + self._after(piece)
        if not others:
            return chunk
        rest = _NO_LOGPROBS + self._frame.closes()
        return chunk + b"".join([opens + delta + rest for delta in others])

    def _after(self, piece: Piece) -> bytes:
        if not self._changes:
            return self._same
        logprobs = b"null" if self._logprobs is None else _encode(self._logprobs(piece.entries))
        ids = None if self._prompt is None else piece.token_ids
        return b'},"logprobs":' + logprobs + b',"finish_reason":null' + self._frame.closes(ids)

    def ending(self, choice: Choice) -> bytes:
        reason = _encode(choice.finish_reason)
        opens = self._frame.opens(choice.index)
        return opens + b'"delta":{},"logprobs":null,"finish_reason":' + reason + self._frame.closes()

    def closing(self, usage: Usage) -> bytes:
        return self._frame.closing(usage)

    def failure(self, error: RequestError) -> bytes:
        return _error_event(error)


def _delta(part: Part) -> bytes:
    """The inside of a part's `delta`."""
    match part:
        case TextDelta(text):
            return b'"content":' + json_text(text)
        case ReasoningDelta(text):
            said = json_text(text)
            return b'"reasoning_content":' + said + b',"reasoning":' + said
        case ToolCallStart(index, id, name):
            function = b'{"name":' + json_text(name) + b',"arguments":""}'
            return b'"tool_calls":[{"index":%d,"id":%b,"type":"function","function":%b}]' % (
                index,
                json_text(id),
                function,
            )
        case ToolCallDelta(index, arguments):
            return b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (index, json_text(arguments))


class CompletionChunks:
    """Chunks of `text_completion`; `logprobs` makes each piece's object, with the choice's running offsets."""

    def __init__(
        self,
        identity: Identity,
        *,
        include_usage: bool = False,
        logprobs: Callable[[Choice, list[TokenEntry]], Any] | None = None,
        running: ReadUsage | None = None,
        prompts: dict[int, list[int]] | None = None,
    ) -> None:
        """`running` as for `ChatChunks`. `prompts`: each choice's ids to tell, and each piece's after them."""
        self._frame = _Frame(identity, "text_completion", include_usage, running)
        self._logprobs = logprobs
        self._prompts = prompts
        self._before: dict[int, bytes] = {}

    def opening(self, choice: Choice) -> bytes:
        before = self._before[choice.index] = self._frame.opens(choice.index) + b'"text":'
        if self._prompts is None:
            return b""
        ids = b',"prompt_token_ids":' + _encode(self._prompts[choice.index])
        return before + b'"","logprobs":null,"finish_reason":null' + ids + self._frame.closes()

    def piece(self, choice: Choice, piece: Piece) -> bytes:
        logprobs = b"null" if self._logprobs is None else _encode(self._logprobs(choice, piece.entries))
        after = b',"logprobs":' + logprobs + b',"finish_reason":null'
        ids = None if self._prompts is None else piece.token_ids
        return self._before[choice.index] + json_text(piece.text) + after + self._frame.closes(ids)

    def ending(self, choice: Choice) -> bytes:
        reason = _encode(choice.finish_reason)
        return self._before[choice.index] + b'"","logprobs":null,"finish_reason":' + reason + self._frame.closes()

    def closing(self, usage: Usage) -> bytes:
        return self._frame.closing(usage)

    def failure(self, error: RequestError) -> bytes:
        return _error_event(error)


class EventStream(Response):
    """Streams a started generation, and aborts it if the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, chunks: Chunks, headers: dict[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers})
        self._generation = generation
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self._generation
        gone = asyncio.create_task(until_disconnect(receive, generation.changed))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            body = b"".join(map(self._chunks.opening, generation.choices))
            await self._flush(send, body, gone)
        except OSError:
            pass  # the client is gone; the server may say so from `send` as well
        finally:
            gone.cancel()
            generation.abort()

    async def _flush(self, send: Send, body: bytes, gone: asyncio.Task[None]) -> None:
        generation = self._generation
        open_choices = list(generation.choices)
        while not gone.done():
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await generation.changed.wait()
            generation.changed.clear()
            body, failure = b"", generation.failure
            try:
                body = self._drain(open_choices)
            except Exception:
                log.exception("a stream's events could not be written")
                failure = EngineFault(FAILED, code="internal_error")
            if failure is not None:
                body += self._chunks.failure(failure)
            elif not open_choices:
                body += self._chunks.closing(generation.usage)
            else:
                continue
            await send({"type": "http.response.body", "body": body, "more_body": False})
            return

    def _drain(self, open_choices: list[Choice]) -> bytes:
        """The bytes of all that is ready; choices that ended leave the list."""
        chunks: list[bytes] = []
        for choice in open_choices[:]:
            if choice.ready:
                chunks.append(self._chunks.piece(choice, choice.take()))
            if choice.finish_reason is not None:
                chunks.append(self._chunks.ending(choice))
                open_choices.remove(choice)
        return b"".join(chunks)


def _error_event(error: RequestError) -> bytes:
    status = status_of(error)
    return b"data: " + _encode(error_object(status, error.message, param=error.param, code=error.code)) + b"\n\n"
