"""Servers whose bottleneck is planted: what their /metrics say after any number of seconds, in each engine's own words.

Model and card are real: Qwen3-4B's shapes, and the rates measured on one H200.
"""

from __future__ import annotations

from dataclasses import dataclass

from firsttoken.bench.model_costs import ModelCosts
from firsttoken.doctor.live.reading import EngineKind
from firsttoken.doctor.live.work import Bounds
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.model import cost
from firsttoken.model.config import parse_config
from tests.qwen3_4b import CONFIG

MODEL = parse_config(CONFIG)
COSTS = ModelCosts(
    weight_bytes=cost.decode_weight_bytes(MODEL), kv_bytes_per_token=cost.kv_bytes_per_token(MODEL), config=MODEL
)
H200 = Ceilings("NVIDIA H200", read=4.41e12, product=791e12)
BOUNDS = Bounds(costs=COSTS, ceilings=H200)
POOL = 700_000  # tokens


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """A steady load. `running` sequences decode, each a token a step, while prompts arrive and are computed."""

    engine: EngineKind
    step_s: float
    running: float = 1.0
    waiting: float = 0.0
    context: int = 600  # tokens, of each running sequence
    kv_usage: float | None = None  # else what the contexts hold
    active: float = 1.0  # share of the time with work
    prompts_per_s: float = 0.0
    prompt_tokens: int = 0
    found: float = 0.0  # share of the prompts' tokens in the prefix cache
    preempted_per_s: float = 0.0
    queue_s: float = 0.0
    wait_share: float = 0.9  # firsttoken: of the busy time
    device_share: float | None = None  # SGLang's device timer
    eager: bool = False
    mfu_metrics: bool = False  # vLLM's own estimates

    def text(self, seconds: float) -> str:
        """After `seconds` of this load, on top of a life before."""
        if self.engine == "sglang":
            return self._sglang(seconds)
        return self._vllm("vllm" if self.engine == "vllm" else "firsttoken", seconds)

    @property
    def _usage(self) -> float:
        return self.running * self.context / POOL if self.kv_usage is None else self.kv_usage

    def _counts(self, seconds: float) -> dict[str, float]:
        busy = seconds * self.active
        steps = busy / self.step_s
        prompts = self.prompts_per_s * seconds
        generated = steps * self.running
        prompt = prompts * self.prompt_tokens
        held = self._usage * POOL
        new = self.prompt_tokens * (1 - self.found)
        flops = prompts * (
            new * cost.layer_flops(MODEL) + cost.attention_flops(MODEL, max(2, int(new)), max(2, self.prompt_tokens))
        )
        return {
            "generated": generated,
            "prompt": prompt,
            "found": prompt * self.found,
            "preempted": self.preempted_per_s * seconds,
            "steps": steps,
            "gaps": generated,
            "gap_seconds": generated * self.step_s,
            "prompts": prompts,
            "queue_seconds": prompts * self.queue_s,
            "busy": busy,
            "read": steps * (COSTS.weight_bytes + held * COSTS.kv_bytes_per_token),
            "flops": flops + generated * cost.decode_flops(MODEL, self.context),
        }

    def _vllm(self, prefix: str, seconds: float) -> str:
        n = self._counts(seconds)
        lines: list[str] = []

        def give(name: str, value: float, kind: str = "counter", **labels: str) -> None:
            has = ",".join(f'{key}="{word}"' for key, word in {"engine": "0", "model_name": "m", **labels}.items())
            if kind:
                lines.append(f"# TYPE {prefix}:{name} {kind}")
            lines.append(f"{prefix}:{name}{{{has}}} {value!r}")

        def histogram(name: str, total: float, count: float) -> None:
            give(f"{name}_bucket", count, "", le="+Inf")
            give(f"{name}_sum", total, "")
            give(f"{name}_count", count, "")

        give("num_requests_running", self.running if self.active > 0 else 0.0, "gauge")
        give("num_requests_waiting", self.waiting, "gauge")
        give("kv_cache_usage_perc", self._usage, "gauge")
        shape = f'block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="{POOL // 16}"'
        lines.append(f"{prefix}:cache_config_info{{{shape}}} 1.0")
        give("generation_tokens_total", 5000 + n["generated"])
        give("prompt_tokens_total", 7000 + n["prompt"])
        give("prefix_cache_queries_total", 7000 + n["prompt"])
        give("prefix_cache_hits_total", 100 + n["found"])
        give("num_preemptions_total", n["preempted"])
        histogram("iteration_tokens_total", 12_000 + n["generated"] + n["prompt"], 5000 + n["steps"])
        histogram("inter_token_latency_seconds", 40 + n["gap_seconds"], 5000 + n["gaps"])
        histogram("time_to_first_token_seconds", 3 + n["prompts"] * 0.1, 30 + n["prompts"])
        histogram("request_queue_time_seconds", 1 + n["queue_seconds"], 30 + n["prompts"])
        if prefix == "firsttoken":
            lines.append(f'{prefix}:engine_state{{state="ready"}} 1.0')
            give("engine_busy_seconds_total", 50 + n["busy"])
            give("engine_device_wait_seconds_total", 20 + n["busy"] * self.wait_share)
        if prefix == "firsttoken" or self.mfu_metrics:
            give("estimated_read_bytes_per_gpu_total", 1e12 + n["read"])
            give("estimated_flops_per_gpu_total", 1e12 + n["flops"])
        elif prefix == "vllm":  # without --enable-mfu-metrics
            give("estimated_read_bytes_per_gpu_total", 0.0)
            give("estimated_flops_per_gpu_total", 0.0)
        return "\n".join(lines) + "\n"

    def _sglang(self, seconds: float) -> str:
        n = self._counts(seconds)
        lines: list[str] = []

        def give(name: str, value: float, **labels: str) -> None:
            for rank in ("0", "1"):  # a second rank says the same, where all ranks export
                all_labels = {"engine_type": "unified", "model_name": "m", "tp_rank": rank, "pp_rank": "0", **labels}
                has = ",".join(f'{key}="{word}"' for key, word in all_labels.items())
                lines.append(f"sglang:{name}{{{has}}} {value!r}")

        def histogram(name: str, total: float, count: float, **labels: str) -> None:
            for part, value in (("sum", total), ("count", count)):
                has = ",".join(f'{key}="{word}"' for key, word in {"model_name": "m", **labels}.items())
                lines.append(f"sglang:{name}_{part}{{{has}}} {value!r}")

        give("num_running_reqs", self.running if self.active > 0 else 0.0, priority="")
        give("num_running_reqs", 1.0, priority="7")
        give("num_queue_reqs", self.waiting, priority="")
        give("token_usage", self._usage)
        give("max_total_num_tokens", float(POOL))
        give("realtime_tokens_total", 5000 + n["generated"], mode="decode")
        give("realtime_tokens_total", 6900 + n["prompt"] - n["found"], mode="prefill_compute")
        give("realtime_tokens_total", 100 + n["found"], mode="prefill_cache")
        give("cuda_graph_passes_total", n["steps"], mode="decode_none" if self.eager else "decode_cuda_graph")
        give("num_retracted_requests_total", n["preempted"])
        if self.device_share is not None:
            give("gpu_execution_seconds_total", 30 + n["busy"] * self.device_share, category="decode")
        lines.append('sglang:generation_tokens_total{model_name="m",is_streaming="true"} 4800.0')
        histogram("inter_token_latency_seconds", 40 + n["gap_seconds"], 5000 + n["gaps"])
        histogram("time_to_first_token_seconds", 3 + n["prompts"] * 0.1, 30 + n["prompts"], is_streaming="true")
        histogram("queue_time_seconds", 1 + n["queue_seconds"], 30 + n["prompts"])
        return "\n".join(lines) + "\n"
