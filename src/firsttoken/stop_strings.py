"""Stop strings over a stream of text: nothing of one is ever let through, however the text is cut into pieces."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import cached_property


class StopSet:
    """Stop strings as one automaton, for all the answers of a request to share.

    Each character is one step whatever the strings' number and length (Aho and Corasick, CACM 1975). A state stands for
    the longest end of the text so far that a stop string begins with.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = sorted(set(stops), key=len)
        self.may_begin = re.compile("[" + "".join(re.escape(stop[0]) for stop in self.stops) + "]").search

    @cached_property
    def states(self) -> list[_State]:
        """The first is where nothing has begun. Made when some text may begin a stop string: most never do."""
        states = [_State(0)]
        for stop in self.stops:
            state = states[0]
            for char in stop:
                if char not in state.next:
                    state.next[char] = len(states)
                    states.append(_State(state.depth + 1))
                state = states[state.next[char]]
            state.longest_end = len(stop)
        waiting = deque(states[0].next.values())
        while waiting:
            state = states[waiting.popleft()]
            for char, target in state.next.items():
                waiting.append(target)
                shorter = state.shorter if state is not states[0] else 0
                states[target].shorter = self._step(states, shorter, char)
            state.longest_end = state.longest_end or states[state.shorter].longest_end
        return states

    def step(self, state: int, char: str) -> int:
        return self._step(self.states, state, char)

    @staticmethod
    def _step(states: list[_State], state: int, char: str) -> int:
        while state and char not in states[state].next:
            state = states[state].shorter
        return states[state].next.get(char, 0)


class _State:
    __slots__ = ("depth", "longest_end", "next", "shorter")

    def __init__(self, depth: int) -> None:
        self.depth = depth  # characters of that end of the text
        self.next: dict[str, int] = {}
        self.shorter = 0  # the state of the next shorter end
        self.longest_end = 0  # length of the longest stop string that the text ends with; 0: none


class StopStrings:
    """Lets text through up to the earliest place where a stop string begins.

    The result is a function of the text alone: of several matches the one that begins first wins, and of those the
    shortest, whatever their order in the list and wherever the pieces end. So where one stop string is found while an
    earlier, longer one may yet complete, the decision waits for the next piece (or `finish`).
    """

    def __init__(self, stops: Sequence[str] | StopSet, *, include: bool = False) -> None:
        self.matched: str | None = None
        self._set = stops if isinstance(stops, StopSet) else StopSet(stops)
        self._include = include
        self._held = ""  # a proper prefix of some stop string, or of more text that begins with one
        self._state = 0
        self._found: tuple[int, int] | None = None  # the best match so far: where in `_held`, and its length

    def push(self, text: str) -> str:
        """Text that may be sent now; "" once a stop string has matched."""
        if self.matched is not None:
            return ""
        if not self._held and not self._set.may_begin(text):
            return text
        states = self._set.states
        begin = len(self._held)
        self._held += text
        for place, char in enumerate(text, begin + 1):
            self._state = self._set.step(self._state, char)
            state = states[self._state]
            if state.longest_end:
                at = place - state.longest_end
                if self._found is None or at < self._found[0]:
                    self._found = (at, state.longest_end)
            if self._found is not None and place - state.depth >= self._found[0]:
                return self._cut()
        ready = len(self._held) - states[self._state].depth
        if self._found is not None:
            ready = min(ready, self._found[0])
        return self._let_go(ready)

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        if self.matched is not None:
            return ""
        return self._let_go(len(self._held)) if self._found is None else self._cut()

    def _let_go(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        if self._found is not None:
            self._found = (self._found[0] - size, self._found[1])
        return text

    def _cut(self) -> str:
        assert self._found is not None
        at, length = self._found
        self.matched = self._held[at : at + length]
        text, self._held = self._held[: at + length if self._include else at], ""
        return text
