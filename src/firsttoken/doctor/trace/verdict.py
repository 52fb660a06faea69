"""What a trace comes to beside the ceilings. Pure: a trace in, figures and a verdict out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firsttoken.bench import units
from firsttoken.bench.model_costs import ModelCosts
from firsttoken.errors import ConfigError
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.model import cost
from firsttoken.traces.summary import OpTime, Summary, summarise, summarise_whole
from firsttoken.traces.trace import WHOLE_GRAPH, Trace

_GAPS = 0.1  # share of the wall from which on gaps are what to look at first


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a step of the trace had to do, as far as the user has told."""

    costs: ModelCosts
    tokens: float = 1.0  # new ones
    context: float = 0.0  # tokens in the contexts of its sequences, together

    def least(self, op: str, ceilings: Ceilings) -> float | None:
        """Seconds of a step that this op takes at least at the ceilings; None where no bound is known."""
        if ceilings.read is None:
            return None
        if op == "products":
            return max(self.costs.weight_bytes / ceilings.read, _time(self._product_flops, ceilings.product))
        if op == "attention" and self.context and self.costs.kv_bytes_per_token:
            return self.context * self.costs.kv_bytes_per_token / ceilings.read
        return None

    @property
    def _product_flops(self) -> float:
        config = self.costs.config
        return 0.0 if config is None else self.tokens * cost.layer_flops(config) + cost.head_flops(config)


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """`least`: seconds a step by op, where a bound is known."""

    trace: Trace
    summary: Summary
    marked: bool  # whether the trace marks its steps; else the whole of it counts as one
    least: dict[str, float]
    ceilings: Ceilings | None

    @property
    def idle_share(self) -> float:
        return 1 - self.summary.busy / self.summary.wall

    @property
    def verdict(self) -> str:
        """One sentence."""
        gaps, what = units.percent(self.idle_share), "GPU" if self.trace.on_gpu else "host's ops"
        if not self.trace.on_gpu:
            return f"The trace has no GPU's kernels: outside of torch's ops were {gaps} of the time."
        if self.idle_share >= _GAPS:
            return f"The {what} did nothing in {gaps} of the time: the host is what the step waits for."
        top = self.summary.ops[0]
        share = units.percent(top.own / self.summary.wall)
        return (
            f"The {what} worked in {units.percent(1 - self.idle_share)} of the time; {top.name} took {share} of it all."
        )

    @property
    def advice(self) -> str:
        """What to do next, in one sentence."""
        if not self.trace.on_gpu:
            return "Compiled kernels, called past torch, count as outside; for a GPU, record CUDA activities."
        if any(op.name == WHOLE_GRAPH for op in self.summary.ops):
            return "Kernels within CUDA graphs were not recorded: profile with `nsys profile --cuda-graph-trace=node`."
        if self.idle_share >= _GAPS:
            gap = self.summary.gaps[0]
            between = self.summary.idle_between_steps > self.summary.idle_within_steps and self.marked
            cure = "queue the next step earlier" if between else "launch the step as a CUDA graph"
            return f"Most of it lies between {gap.after or 'the beginning'} and {gap.before}: {cure}."
        nearest = self._share_of(self.summary.ops[0])
        if nearest is None:
            return "Name the model with --model-config, and --tokens and --context of a step, to see its ceiling."
        if nearest >= 0.8:
            return "That is near the ceiling: fewer bytes (`--quantization`) or a faster card are what is left."
        return f"It runs at {units.percent(nearest)} of what its bytes and FLOPs allow: a better kernel would help."

    @property
    def step_share(self) -> float | None:
        """Of a step's wall, what it would take at the ceilings; None where the bound of its products is unknown."""
        if "products" not in self.least:
            return None
        return sum(self.least.values()) * 1e6 * self.summary.steps / self.summary.wall

    def shares(self) -> dict[str, float]:
        """By op: the least time over its own."""
        found = {op.name: self._share_of(op) for op in self.summary.ops}
        return {name: share for name, share in found.items() if share is not None}

    def _share_of(self, op: OpTime) -> float | None:
        least = self.least.get(op.name)
        return None if least is None or not op.own else least * 1e6 * self.summary.steps / op.own

    def as_json(self) -> dict[str, Any]:
        summary, steps, shares = self.summary, self.summary.steps, self.shares()
        return {
            "device": self.trace.device_name,
            "on_gpu": self.trace.on_gpu,
            "steps": steps if self.marked else None,
            "verdict": self.verdict,
            "advice": self.advice,
            "wall_us": summary.wall / steps,
            "busy_us": summary.busy / steps,
            "idle_share": self.idle_share,
            "share_of_ceiling": self.step_share,
            "idle_between_steps_us": summary.idle_between_steps / steps if self.marked else None,
            "idle_within_steps_us": summary.idle_within_steps / steps if self.marked else None,
            "paused_us": summary.paused,
            "ops": [
                {
                    "op": op.name,
                    "calls": op.calls / steps,
                    "us": op.total / steps,
                    "own_us": op.own / steps,
                    "own_share": op.own / summary.wall,
                    "share_of_ceiling": shares.get(op.name),
                }
                for op in summary.ops
            ],
            "gaps": [
                {"after": gap.after, "before": gap.before, "us": gap.total / steps, "times": gap.times / steps}
                for gap in summary.gaps
            ],
        }


def judge_trace(trace: Trace, work: StepWork | None = None, ceilings: Ceilings | None = None) -> TraceFinding:
    """By its marked steps, else as a whole. Raises ConfigError where it lasts no time."""
    summary = summarise(trace) if len(trace.steps) > 1 else None
    marked = summary is not None
    if summary is None:
        summary = summarise_whole(trace)
    if summary is None or not summary.wall:
        raise ConfigError("The trace shows nothing that took time.")
    least: dict[str, float] = {}
    if work is not None and ceilings is not None and marked:
        bounds = {op.name: work.least(op.name, ceilings) for op in summary.ops}
        least = {name: seconds for name, seconds in bounds.items() if seconds is not None}
    return TraceFinding(trace, summary, marked, least, ceilings)


def _time(flops: float, rate: float | None) -> float:
    return flops / rate if rate else 0.0
