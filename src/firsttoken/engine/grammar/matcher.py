"""Where one sequence stands in its grammar."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray


class Matcher:
    """Advances with the sequence's committed tokens, and says what may come next.

    `ended`: nothing but an end id may follow, or nothing at all; `complete`: what there is satisfies the grammar.
    """

    def __init__(self, inner: LLMatcher, end_ids: frozenset[int], stop_ids: frozenset[int]) -> None:
        """`end_ids` are the model's; `stop_ids` those that end this sequence."""
        self._inner = inner
        self._end_ids = end_ids
        late = np.array(sorted(end_ids | stop_ids), dtype=np.int64)
        self._late_words, bits = late // 32, np.left_shift(1, late % 32)
        self._late_bits = bits.astype(np.uint32).view(np.int32)
        self.ended = False

    @property
    def complete(self) -> bool:
        return self._inner.is_accepting() and not self._inner.is_error()

    @property
    def fault(self) -> str:
        """Why it can go no further; empty where it can, or is complete."""
        return self._inner.get_error()

    def advance(self, token_id: int) -> None:
        """A token was chosen. One that the grammar does not allow ends it."""
        if token_id in self._end_ids:
            self.ended = True
            return
        self._inner.consume_token(token_id)
        self.ended = self._inner.is_stopped()

    def fill(self, mask: NDArray[np.int32], *, keep_open: bool) -> bool:
        """Writes what may come next: bit i of word w for id 32 w + i. False where nothing may.

        `keep_open`: no id that would end the sequence, unless there is no other.
        """
        self._inner.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._inner.is_error() or not mask.any():
            self.ended = True
            return False
        if keep_open:
            everything = mask.copy()
            np.bitwise_and.at(mask, self._late_words, ~self._late_bits)
            if not mask.any():
                mask[:] = everything
        return True
