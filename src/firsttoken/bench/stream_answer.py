"""One streamed answer, from its events to a `RequestRecord`: OpenAI's chunks, and what other servers add to them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from firsttoken.bench.event_cutter import EventCutter
from firsttoken.bench.records import Chunk, RequestRecord
from firsttoken.bench.token_counts import TokenEnds, count_by_ends, spread


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None  # vLLM, SGLang, llama.cpp
    reasoning: str | None = None  # vLLM since 0.12
    tool_calls: list[_ToolCall] | None = None


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None  # chat
    tokens: list[msgspec.Raw] | None = None  # completions


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None  # vLLM with return_token_ids


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's, until now."""

    prompt_n: int | None = None  # without those from the cache
    cache_n: int | None = None
    predicted_n: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: msgspec.Raw = msgspec.Raw()


_event = msgspec.json.Decoder(_Event)
_DONE = b"[DONE]"


class StreamAnswer:
    """Fills a record in. Every callback takes the time at which the bytes came in, seconds of `time.monotonic()`."""

    def __init__(
        self,
        record: RequestRecord,
        token_ends: TokenEnds | None = None,
        *,
        tells_after: int = 0,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` is called when so many chunks have come, if ever."""
        self.record = record
        self._token_ends = token_ends
        self._tells_after, self._tell = tells_after, tell
        self._cutter = EventCutter()
        self._streams = False
        self._plain: list[bytes] = []  # the body of an answer that is no event stream
        self._over = False  # [DONE] was read
        self._by_server = True  # so far every chunk's tokens were said
        self._pending = 0  # tokens whose text has not come yet (half a character, a held-back stop string)
        self._running = 0  # the server's running count
        self._timings = _Timings()

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.record.chunks)

    def sent(self, at: float) -> None:
        self.record.sent = at

    def headers(self, at: float, status: int, content_type: str) -> None:
        self.record.headers = at
        self.record.status = status
        self._streams = status == 200 and content_type.startswith("text/event-stream")

    def data(self, at: float, data: bytes) -> None:
        if not self._streams:
            self._plain.append(data)
            return
        for event in self._cutter.feed(data):
            self._read(at, event)

    def ended(self, at: float) -> None:
        """The body is complete."""
        record = self.record
        if self._streams:
            for event in self._cutter.rest():
                self._read(at, event)
            if record.error is None and not self._over and record.finish_reason is None:
                record.error = "the stream ended without a finish reason and without [DONE]"
        elif record.status == 200:
            record.error = "the server did not stream its answer"
        else:
            record.error = f"HTTP {record.status}: {_error_text(b''.join(self._plain))}"
        self._close(at)

    def failed(self, at: float, sentence: str) -> None:
        """The connection could not be made, broke, or fell silent; chunks until then are kept."""
        self.record.error = self.record.error or sentence
        self._close(at)

    def _close(self, at: float) -> None:
        self.record.ended = at
        self._take_timings()
        self._count_tokens()

    def _read(self, at: float, data: bytes) -> None:
        record = self.record
        if data == _DONE:
            self._over = True
            return
        try:
            event = _event.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            record.error = record.error or f"an event of the stream is not a completion chunk: {error}"
            return
        if event.error and bytes(event.error) != b"null":
            record.error = record.error or f"error in the stream: {_error_text(data)}"
        text = ""
        said: int | None = None
        for choice in event.choices or ():
            text += _text_of(choice)
            if choice.finish_reason is not None:
                record.finish_reason = choice.finish_reason
            count = _tokens_said(choice)
            if count is not None:
                said = (said or 0) + count
        said = self._from_running(event, said)
        if said is not None:
            self._pending += said
        if event.usage is not None:
            self._take_usage(event.usage)
        if event.timings is not None:
            self._timings = event.timings
        if text:
            if said is None:
                self._by_server = False
            record.chunks.append(Chunk(at, text, self._pending))
            self._pending = 0
            if len(record.chunks) == self._tells_after:
                self._tell()

    def _from_running(self, event: _Event, said: int | None) -> int | None:
        """New tokens by the server's running count (usage in every chunk, llama.cpp's timings), else `said`."""
        running = event.timings.predicted_n if event.timings is not None else None
        if running is None and event.choices and event.usage is not None:
            running = event.usage.completion_tokens
        if running is None or said is not None:
            return said
        new = max(running - self._running, 0)
        self._running = max(running, self._running)
        return new

    def _take_usage(self, usage: _Usage) -> None:
        record = self.record
        if usage.prompt_tokens is not None:
            record.prompt_tokens = usage.prompt_tokens
        if usage.completion_tokens is not None:
            record.completion_tokens = usage.completion_tokens
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            record.cached_tokens = usage.prompt_tokens_details.cached_tokens

    def _take_timings(self) -> None:
        """What llama.cpp counted, where usage did not say it."""
        record, timings = self.record, self._timings
        if record.cached_tokens is None:
            record.cached_tokens = timings.cache_n
        if record.completion_tokens is None:
            record.completion_tokens = timings.predicted_n
        if record.prompt_tokens is None and timings.prompt_n is not None and timings.cache_n is not None:
            record.prompt_tokens = timings.prompt_n + timings.cache_n

    def _count_tokens(self) -> None:
        record = self.record
        chunks = record.chunks
        if not chunks:
            return
        if self._by_server and any(chunk.tokens for chunk in chunks):
            record.token_source = "server"
            return
        texts = [chunk.text for chunk in chunks]
        if self._token_ends is not None:
            record.token_source = "tokenizer"
            counts = count_by_ends(texts, self._token_ends("".join(texts)))
        elif record.completion_tokens is not None:
            record.token_source = "spread"
            counts = spread(record.completion_tokens, texts)
        elif record.finish_reason == "length" and record.max_tokens is not None:
            record.token_source = "asked"
            counts = spread(record.max_tokens, texts)
        else:
            record.token_source = "none"
            counts = [1] * len(texts)
        record.chunks = [Chunk(chunk.at, chunk.text, count) for chunk, count in zip(chunks, counts, strict=True)]


def _text_of(choice: _Choice) -> str:
    delta = choice.delta
    if delta is None:
        return choice.text or ""
    text = (delta.reasoning_content or delta.reasoning or "") + (delta.content or "")
    for call in delta.tool_calls or ():
        if call.function is not None:
            text += (call.function.name or "") + (call.function.arguments or "")
    return text


def _tokens_said(choice: _Choice) -> int | None:
    if choice.token_ids is not None:
        return len(choice.token_ids)
    if choice.logprobs is not None:
        entries = choice.logprobs.content if choice.logprobs.content is not None else choice.logprobs.tokens
        if entries is not None:
            return len(entries)
    return None


class _ErrorObject(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _ErrorObject | str | None = None
    message: str = ""
    detail: msgspec.Raw = msgspec.Raw()


def _error_text(body: bytes) -> str:
    """The message of an error object as OpenAI, vLLM, FastAPI and llama.cpp write it; else the body's beginning."""
    try:
        parsed = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return body[:200].decode("utf-8", "replace").strip() or "no explanation"
    error = parsed.error.message if isinstance(parsed.error, _ErrorObject) else parsed.error
    return error or parsed.message or bytes(parsed.detail).decode("utf-8", "replace") or "no explanation"
