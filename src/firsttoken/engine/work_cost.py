"""What a step has to read and compute at least, whatever kernels run it."""

from __future__ import annotations

from dataclasses import dataclass

from firsttoken.engine.step_plan import StepPlan
from firsttoken.model.config import ModelConfig
from firsttoken.model.cost import attention_flops, head_flops, layer_flops


@dataclass(frozen=True, slots=True)
class WorkCost:
    """Bytes and FLOPs by the model's shapes; all zero where nobody knows them."""

    step_bytes: int = 0  # weights, once a step
    context_bytes: int = 0  # keys and values of a token in a row's context
    token_flops: int = 0  # layers, a new token
    sample_flops: int = 0  # the head, a row that samples
    pair_flops: int = 0  # attention of one token to one token

    @classmethod
    def of_model(cls, config: ModelConfig, weight_bytes: int, kv_bytes_per_token: int) -> WorkCost:
        return cls(
            step_bytes=weight_bytes,
            context_bytes=kv_bytes_per_token,
            token_flops=layer_flops(config),
            sample_flops=head_flops(config),
            pair_flops=attention_flops(config, 1, 1),
        )

    def of_step(self, plan: StepPlan) -> tuple[int, int]:
        """Bytes read and FLOPs: a prompt's chunk attends to what is before it and, causally, to itself."""
        tokens = samples = context = pairs = 0
        for row in plan.rows:
            new = row.num_tokens
            tokens += new
            samples += row.samples
            context += row.start + new
            pairs += new * row.start + new * new // 2 if new > 1 else row.start + 1
        flops = self.token_flops * tokens + self.sample_flops * samples + self.pair_flops * pairs
        return self.step_bytes + self.context_bytes * context, flops
