"""One sequence's text as it grows, between the engine's tokens and the client."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from firsttoken.detokenizer import Detokenizer
from firsttoken.errors import RequestError, Unavailable
from firsttoken.server.answer_parts import AnswerParser, Part, merged
from firsttoken.server.error_handlers import EngineFault
from firsttoken.stop_strings import StopSet, StopStrings
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import FinishReason, SequenceOutput, TokenLogprob

AnswerEnd = FinishReason | Literal["tool_calls"]


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token that the client is shown: `data` is what it adds to the text, exactly."""

    token_id: int
    data: bytes
    logprob: TokenLogprob | None  # None for the first token of a prompt: nothing precedes it


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How tokens become text."""

    stop: StopSet | None = None
    min_tokens: int = 0  # stop strings are looked for in the text from this token on
    include_stop: bool = False  # the stop string, or the stop id's text, stays in the answer
    skip_special_tokens: bool = True
    generates: bool = True  # False: the request only wants its prompt back
    token_ids: bool = False  # the tokens' ids are wanted too


@dataclass(slots=True)
class Piece:
    """What became ready to send since the last piece."""

    text: str  # of a choice without a parser
    entries: list[TokenEntry]  # empty unless logprobs were asked for
    parts: Sequence[Part] = ()  # of a choice with a parser
    token_ids: Sequence[int] = ()  # all so far and not yet taken, where asked for


class Entries:
    """Tokens on their way to the client: held back while any of their text is, so as never to run ahead of a stop."""

    def __init__(self, table: dict[int, bytes]) -> None:
        self.ready: list[TokenEntry] = []
        self._table = table
        self._held: list[TokenEntry] = []
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._chars = 0  # characters of all tokens so far
        self.released = 0  # characters of those that became ready

    def add(self, token_id: int, logprob: TokenLogprob | None) -> None:
        data = self._table[token_id]
        self._chars += len(self._decoder.decode(data))
        self._held.append(TokenEntry(token_id, data, logprob))

    def release(self, chars: int) -> None:
        """All of them, if the `chars` characters let through are all that there are."""
        if chars >= self._chars and not self._decoder.getstate()[0]:
            self.ready += self._held
            self._held = []
            self.released = chars

    def finish(self, chars: int | None) -> None:
        """All of them; or those that begin within the first `chars` characters of the text that are not ready yet."""
        decoder = getincrementaldecoder("utf-8")("replace")
        for entry in self._held:
            if chars is not None and chars <= 0 and entry.data:
                break
            self.ready.append(entry)
            if chars is not None:
                chars -= len(decoder.decode(entry.data))
        self._held = []


class Choice:
    """Text and tokens are taken out in pieces; what is not taken yet is merged into the next piece.

    With a parser the text, cut at a stop string, is taken as parts. Tokens stay those of the whole text.
    """

    def __init__(
        self,
        index: int,
        tokenizer: Tokenizer,
        options: TextOptions,
        *,
        wants_logprobs: bool = False,
        echo: str = "",
        awaits_prompt: bool = False,
        parser: AnswerParser | None = None,
    ) -> None:
        self.index = index
        self.tokens = 0  # generated, up to and with the one that ended it
        self.reasoning_tokens = 0  # of them, those of the model's thoughts
        self.finish_reason: AnswerEnd | None = None
        self.parser = parser
        self.error: RequestError | None = None
        self._options = options
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=options.skip_special_tokens)
        self._stops = StopStrings(options.stop, include=options.include_stop) if options.stop is not None else None
        table = tokenizer.shown_bytes if options.skip_special_tokens else tokenizer.all_bytes
        self._entries = Entries(table) if wants_logprobs else None
        self._texts: list[str] = [echo] if echo else []
        self._parts: list[Part] = []
        self._ids: list[int] = []
        self._awaits_prompt = awaits_prompt  # nothing is taken before the prompt's own tokens are there
        self._chars = 0  # let through, without the echo
        self._over = False  # the text ended before the engine's tokens did

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        something = self._texts or self._parts or (self._entries and self._entries.ready) or (self.done and self._ids)
        return not self._awaits_prompt and bool(something)

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it."""
        return None if self._stops is None else self._stops.matched

    @property
    def done(self) -> bool:
        return self.finish_reason is not None or self.error is not None

    def accept(self, output: SequenceOutput) -> bool:
        """Takes one step's tokens. True if the text ended just now, so that the engine must be told."""
        if self.done:
            return False
        if not self._options.generates:
            self.finish_reason = "length"
            return False
        ended_by_id = output.stop_token_id is not None and not self._options.include_stop
        last = len(output.token_ids) - 1
        for i, token_id in enumerate(output.token_ids):
            self.tokens += 1
            if self._options.token_ids:
                self._ids.append(token_id)
            if ended_by_id and i == last:
                break  # the end id is counted and not shown
            if self._entries is not None:
                self._entries.add(token_id, output.logprobs[i] if output.logprobs else None)
            self._let_through(self._detokenizer.push((token_id,)))
            if self._over:
                self._end("stop")
                return output.finish_reason is None
        match output.finish_reason:
            case None:
                if self._entries is not None:
                    self._entries.release(self._chars)
            case "stop" | "length":
                self._let_through(self._detokenizer.finish(), last=True)
                self._end(output.finish_reason)
            case "abort":
                self.error = Unavailable("The server ended this request before it was complete; send it again.")
            case "error":
                self.error = EngineFault(output.error or "The engine failed on this request.", code="engine_error")
        return False

    def prepend_prompt(self, entries: list[TokenEntry]) -> None:
        """The echoed prompt's tokens, for which the first piece waited."""
        assert self._entries is not None
        self._entries.ready[:0] = entries
        self._awaits_prompt = False

    def end_unstarted(self) -> None:
        """Nothing was asked of the engine: the answer is the echo alone."""
        self.finish_reason = "length"

    def take(self) -> Piece:
        piece = Piece("".join(self._texts), [])
        self._texts = []
        if self._parts:
            piece.parts, self._parts = merged(self._parts), []
        if self._ids:
            piece.token_ids, self._ids = self._ids, []
        if self._entries is not None:
            piece.entries, self._entries.ready = self._entries.ready, []
        return piece

    def _let_through(self, text: str, *, last: bool = False) -> None:
        if self._stops is not None and self.tokens >= self._options.min_tokens:
            text = self._stops.push(text)
            if last:
                text += self._stops.finish()
            self._over = self._stops.matched is not None
        self._chars += len(text)
        if self.parser is None:
            if text:
                self._texts.append(text)
            return
        if text:
            self._parts += self.parser.push(text)
            self._over |= self.parser.over and self.tokens >= self._options.min_tokens
        self.reasoning_tokens += self.parser.thinking and not last

    def _end(self, reason: FinishReason) -> None:
        by_string = self._stops is not None and self._stops.matched is not None
        self.finish_reason = "stop" if by_string else reason
        if self.parser is not None:
            self._parts += self.parser.finish()
            if self.finish_reason == "stop" and self.parser.calls:
                self.finish_reason = "tool_calls"
        if self._entries is not None:
            self._entries.finish(self._chars - self._entries.released if by_string else None)
