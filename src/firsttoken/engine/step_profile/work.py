"""What steps had to read and compute at least, from their plans and the model's shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firsttoken.engine.step_plan import StepPlan
from firsttoken.engine.work_cost import WorkCost
from firsttoken.model.config import ModelConfig
from firsttoken.types import EngineInfo


@dataclass(frozen=True, slots=True)
class Work:
    """Of all steps together."""

    steps: int = 0
    rows: int = 0  # sequences that had a part in a step
    tokens: int = 0
    context: int = 0  # tokens in the contexts of those rows
    num_bytes: int = 0  # weights once a step, and keys and values of every row's context
    flops: int = 0


def work_of(plans: Iterable[StepPlan], config: ModelConfig, info: EngineInfo) -> Work:
    """Counts the layers for every token, the head for every row that samples, attention over the causal part."""
    cost = WorkCost.of_model(config, info.weight_bytes, info.kv_bytes_per_token)
    steps = rows = tokens = context = num_bytes = flops = 0
    for plan in plans:
        steps += 1
        rows += len(plan.rows)
        tokens += plan.num_tokens
        context += sum(row.end for row in plan.rows)
        step_bytes, step_flops = cost.of_step(plan)
        num_bytes += step_bytes
        flops += step_flops
    return Work(steps, rows, tokens, context, num_bytes, flops)
