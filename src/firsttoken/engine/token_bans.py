"""`allowed_token_ids` and `bad_words`: ids that a row may not take, as edits of its logits.

The token before the one to be chosen may still be on the device, so whether a bad word of several ids is about to be
completed is decided there: the host compares what it has, the device its newest id.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from firsttoken.engine.batch import Ints, to_device
from firsttoken.engine.step_plan import PlanRow
from firsttoken.types import SamplingParams

_NEVER = float("-inf")


@dataclass(slots=True)
class BanStep:
    """What one step's rows may not take. Each list of rows stands beside one of ids."""

    kept: list[tuple[int, Ints]] = field(default_factory=list)  # rows and all that they may take
    rows: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    awaited: list[tuple[int, int, int, int]] = field(default_factory=list)  # row, its slot, id, newest id that bans it
    watched: list[tuple[int, int]] = field(default_factory=list)  # rows and slots whose choice is remembered


class TokenBans:
    """The restrictions of each slot, and the newest id of those that have bad words of several ids."""

    def __init__(self, max_num_seqs: int, vocabulary: int, device: torch.device) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._allowed: list[Ints | None] = [None] * max_num_seqs
        self._words: list[tuple[tuple[int, ...], ...]] = [()] * max_num_seqs
        self._restricted = np.zeros(max_num_seqs, dtype=np.bool_)
        self._newest = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)

    def admit(self, slot: int, params: SamplingParams) -> None:
        allowed = sorted({id_ for id_ in params.allowed_token_ids if id_ < self._vocabulary})
        self._allowed[slot] = np.array(allowed, dtype=np.int64) if allowed else None
        self._words[slot] = params.bad_words
        self._restricted[slot] = bool(allowed or params.bad_words)

    def restrict(self, slot: int) -> bool:
        return bool(self._restricted[slot])

    def prepare(self, rows: Many[PlanRow]) -> BanStep | None:
        """None where no row is restricted."""
        if not self._restricted.any():
            return None
        step = BanStep()
        for i, row in enumerate(rows):
            slot = row.seq.slot
            if (allowed := self._allowed[slot]) is not None:
                step.kept.append((i, allowed))
            if self._words[slot]:
                self._prepare_words(step, i, row)
        return step if step.kept or step.rows or step.awaited or step.watched else None

    def apply(self, step: BanStep, logits: Tensor) -> None:
        """In place: logits [rows, ids] of the same rows."""
        for row, allowed in step.kept:
            ids = to_device(allowed, self._device)
            own = logits[row, ids]
            logits[row].fill_(_NEVER)
            logits[row, ids] = own
        if step.rows:
            logits[self._ids(step.rows), self._ids(step.ids)] = _NEVER
        if step.awaited:
            rows, slots, ids, newest = (self._ids(column) for column in zip(*step.awaited, strict=True))
            banned = torch.where(self._newest[slots] == newest, _NEVER, 0.0)
            logits.index_put_((rows, ids), banned, accumulate=True)

    def remember(self, step: BanStep, ids: Tensor) -> None:
        """`ids` [rows] were chosen."""
        if step.watched:
            rows, slots = (self._ids(column) for column in zip(*step.watched, strict=True))
            self._newest[slots] = ids[rows]

    def _prepare_words(self, step: BanStep, index: int, row: PlanRow) -> None:
        words, ids = self._words[row.seq.slot], row.seq.token_ids
        longest = max(map(len, words))
        output = ids[max(row.seq.num_prompt_tokens, row.end - longest) : row.end]
        on_device = row.end > len(ids)
        for *before, last in words:
            if not before:
                step.rows.append(index)
                step.ids.append(last)
                continue
            known = before[:-1] if on_device else before
            if len(known) > len(output) or output[len(output) - len(known) :] != known:
                continue
            if on_device:
                step.awaited.append((index, row.seq.slot, last, before[-1]))
            else:
                step.rows.append(index)
                step.ids.append(last)
        if longest > 1:
            step.watched.append((index, row.seq.slot))

    def _ids(self, values: Many[int]) -> Tensor:
        return to_device(np.array(values, dtype=np.int64), self._device)
