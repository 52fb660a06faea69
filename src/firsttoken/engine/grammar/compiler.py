"""Grammars to matchers, in threads beside the step loop, each grammar once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from llguidance import LLMatcher, LLParserLimits

from firsttoken.engine.grammar.matcher import Matcher
from firsttoken.engine.grammar.refusal import refusal, too_many, too_slow
from firsttoken.engine.grammar.source import to_llguidance
from firsttoken.engine.grammar.vocabulary import Vocabulary
from firsttoken.types import Grammar

_THREADS = 2
_MAX_WAITING = 32  # grammars; the largest take a third of a second
_MAX_KEPT = 128  # compiled grammars, ...
_MAX_KEPT_SOURCE = 4 << 20  # ... and characters of source: a compiled one was seen to take up to 200 times as much
# The library follows rules and references that name one another by recursion, and one stack too small ends the process:
# 256 MiB were enough for 570,000 characters. Only what is used of it is taken.
_STACK = 512 << 20  # bytes
_MAX_SOURCE = 500_000  # characters, whatever the server lets through
# What one step may cost everyone: at most some 15 ms, by the library's own figures and by test.
_LIMITS = LLParserLimits(
    initial_lexer_fuel=300_000,
    max_items_in_row=2000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    verbose_errors=False,
)


class Compiled:
    """A grammar that some text satisfies. Its matchers share what they learn of it."""

    def __init__(self, root: LLMatcher, end_ids: frozenset[int]) -> None:
        self._root = root
        self._end_ids = end_ids

    def matcher(self, stop_ids: frozenset[int]) -> Matcher:
        """A new one, at the grammar's start."""
        return Matcher(self._root.deep_copy(), self._end_ids, stop_ids)


class GrammarCompiler:
    """Called by one thread. Results, refusals too, are kept by grammar, the least recently used out first."""

    def __init__(self, vocabulary: Vocabulary, *, max_seconds: float = 5.0) -> None:
        """`max_seconds`: how long a request waits for its grammar."""
        self.max_seconds = max_seconds
        self._vocabulary = vocabulary
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
        self._kept: OrderedDict[Grammar, Future[Compiled]] = OrderedDict()
        self._source = 0  # characters of those kept

    def compile(self, grammar: Grammar) -> Future[Compiled]:
        """Done at once where the grammar is known. Its exception is InvalidRequest where no answer can keep to it.

        Raises QueueFull when too many others are being compiled.
        """
        known = self._kept.get(grammar)
        if known is not None:
            self._kept.move_to_end(grammar)
            return known
        if sum(not other.done() for other in self._kept.values()) >= _MAX_WAITING:
            raise too_many()
        with _large_stack():
            found = self._kept[grammar] = self._pool.submit(_compile, self._vocabulary, grammar)
        self._source += len(grammar.source)
        while len(self._kept) > _MAX_KEPT or (self._source > _MAX_KEPT_SOURCE and len(self._kept) > 1):
            oldest, _ = self._kept.popitem(last=False)
            self._source -= len(oldest.source)
        return found

    def get(self, grammar: Grammar) -> Compiled:
        """Waits for it. Raises InvalidRequest or QueueFull."""
        try:
            return self.compile(grammar).result(self.max_seconds)
        except TimeoutError:
            raise too_slow(self.max_seconds) from None


@contextmanager
def _large_stack() -> Iterator[None]:
    """For threads that are started within: the pool starts its own when it is first given work."""
    before = threading.stack_size(_STACK)
    try:
        yield
    finally:
        threading.stack_size(before)


def _compile(vocabulary: Vocabulary, grammar: Grammar) -> Compiled:
    tokenizer = vocabulary()
    if len(grammar.source) + len(grammar.around) > _MAX_SOURCE:
        raise refusal(f"it has more than {_MAX_SOURCE} characters")
    try:
        source = to_llguidance(grammar)
    except ValueError as error:
        raise refusal(str(error)) from None
    root = LLMatcher(tokenizer, source, log_level=0, limits=_LIMITS)
    if root.is_error():
        raise refusal(root.get_error(), has_places=grammar.kind == "lark")
    _probe(root.deep_copy())
    return Compiled(root, frozenset(tokenizer.eos_tokens))


def _probe(matcher: LLMatcher) -> None:
    """Takes the first steps here, where they cost nobody: they are the slowest, and show what has no answer at all."""
    for _ in range(2):
        mask = matcher.compute_bitmask()
        if matcher.is_error() or not any(mask):
            reason = matcher.get_error().split("\n", 1)[0]
            raise refusal("no text satisfies it" if reason in ("", "NoExtensionBias") else reason)
        first = int(np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little").argmax())
        matcher.consume_token(first)
        if matcher.is_stopped():
            return
