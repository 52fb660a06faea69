"""The masks of one step's guided rows."""

from __future__ import annotations

import numpy as np

from firsttoken.engine.sequence import Sequence, Status
from firsttoken.engine.step_plan import Masks, StepPlan


class MaskBuilder:
    """Asks each row's matcher once the step before is committed, while the device computes this one."""

    def __init__(self, token_id_limit: int) -> None:
        self._words = -(-token_id_limit // 32)

    def build(self, plan: StepPlan) -> tuple[Masks, list[Sequence]]:
        """One mask a guided row, and the sequences for which no token is possible: those are to be ended."""
        masks: Masks = np.empty((len(plan.guided), self._words), dtype=np.int32)
        stuck: list[Sequence] = []
        for mask, index in zip(masks, plan.guided, strict=True):
            seq = plan.rows[index].seq
            assert seq.matcher is not None, "a guided row has a matcher"
            if seq.status is Status.FINISHED:
                mask.fill(-1)  # ended by the step before; what this one samples is dropped
                continue
            sampling = seq.request.sampling
            keep_open = sampling.ignore_eos or seq.num_output_tokens < sampling.min_tokens
            if not seq.matcher.fill(mask, keep_open=keep_open):
                stuck.append(seq)
                mask.fill(-1)
        return masks, stuck
