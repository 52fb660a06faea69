"""Token ids to text, as they come."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firsttoken.stop_strings import StopStrings

if TYPE_CHECKING:
    from firsttoken.tokenizer import Tokenizer


class Detokenizer:
    """The text of one sequence's output, pushed a few ids at a time.

    All that `push` and `finish` return, joined, is `bytes.decode(errors="replace")` of the bytes of all ids: a
    character cut by a token's end waits for its rest, bytes that are no UTF-8 become U+FFFD. It sees the output
    alone. So where a prompt ends inside a character, the output's leading continuation bytes are U+FFFD each, and
    the prompt's own bytes never come back. The output goes on from a prompt, so SentencePiece's leading space stays.

    Stop strings (never empty ones) are matched on the text, special tokens included when they are shown. Text behind
    a stop string is dropped; `stopped` says which one it was.
    """

    __slots__ = ("_stops", "_table", "_tail")

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
    ) -> None:
        self._table = tokenizer.shown_bytes if skip_special_tokens else tokenizer.all_bytes
        self._tail = b""  # the beginning of a character
        self._stops = StopStrings(stop, include=include_stop) if stop else None

    @property
    def stopped(self) -> str | None:
        """The stop string that matched."""
        return None if self._stops is None else self._stops.matched

    def push(self, ids: Sequence[int]) -> str:
        """Text that may be sent now."""
        table = self._table
        data = table[ids[0]] if len(ids) == 1 else b"".join([table[token_id] for token_id in ids])
        if self._tail:
            data = self._tail + data
        text, used = utf_8_decode(data, "replace", False)
        self._tail = data[used:]
        return text if self._stops is None else self._stops.push(text)

    def finish(self) -> str:
        """What was held back: a possible beginning of a stop string, and U+FFFD for a cut character."""
        text = self._tail.decode(errors="replace")
        self._tail = b""
        if self._stops is None:
            return text
        return self._stops.push(text) + self._stops.finish()
