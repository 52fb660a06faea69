"""From the text of /metrics to a `Reading`: what firsttoken, vLLM (its first engine and v1) and SGLang call things."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from firsttoken.doctor.live.reading import Reading, Totals
from firsttoken.errors import ConfigError, Unavailable

# Series of other ranks and priorities repeat what the first rank and the empty priority say of all.
_REPEATED = {"tp_rank": "0", "pp_rank": "0", "priority": ""}

Labels = Mapping[str, str]


def read_metrics(text: str, at: float) -> Reading:
    """Raises ConfigError where the text is of none of the three, and Unavailable where it has no numbers."""
    try:
        samples = _Samples(text)
    except ValueError as error:
        raise ConfigError(f"what the server's /metrics answers cannot be read as metrics ({error})") from None
    prefixes = samples.prefixes
    if (own := next((name for name in samples.names if name.endswith(":engine_state")), None)) is not None:
        return _vllm(samples, own.removesuffix("engine_state"), at)
    if "sglang:" in prefixes:
        return _sglang(samples, at)
    if "vllm:" in prefixes:
        return _vllm(samples, "vllm:", at)
    raise ConfigError(
        "the server's /metrics names neither firsttoken, vLLM nor SGLang; start SGLang with --enable-metrics"
    )


def _vllm(samples: _Samples, prefix: str, at: float) -> Reading:
    """firsttoken's are vLLM's too, and some more."""

    def total(*names: str) -> float | None:
        return samples.total(*(prefix + name for name in names))

    gaps = ("inter_token_latency_seconds", "time_per_output_token_seconds")
    cache = samples.labels(f"{prefix}cache_config_info")
    if (running := total("num_requests_running")) is None:
        raise Unavailable("the server told no numbers: its engine is loading, hangs, or is in a step of many seconds")
    return Reading(
        at=at,
        engine="vllm" if f"{prefix}engine_state" not in samples.names else "firsttoken",
        running=running,
        waiting=total("num_requests_waiting") or 0.0,
        kv_usage=samples.mean(f"{prefix}kv_cache_usage_perc", f"{prefix}gpu_cache_usage_perc"),
        kv_tokens=_pool(cache, "num_gpu_blocks", "block_size"),
        kv_in_8_bits=any("fp8" in labels.get("cache_dtype", "").lower() for labels in cache),
        totals=Totals(
            generated=total("generation_tokens_total"),
            prompt=total("prompt_tokens_total"),
            looked_up=total("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
            found=total("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
            preempted=total("num_preemptions_total"),
            steps=total("iteration_tokens_total_count"),
            gap_seconds=total(*(f"{name}_sum" for name in gaps)),
            gaps=total(*(f"{name}_count" for name in gaps)),
            first_seconds=total("time_to_first_token_seconds_sum"),
            firsts=total("time_to_first_token_seconds_count"),
            queue_seconds=total("request_queue_time_seconds_sum"),
            queued=total("request_queue_time_seconds_count"),
            # Zero where vLLM was started without --enable-mfu-metrics, or cannot tell.
            read_bytes=total("estimated_read_bytes_per_gpu_total") or None,
            flops=total("estimated_flops_per_gpu_total") or None,
            busy_seconds=total("engine_busy_seconds_total"),
            wait_seconds=total("engine_device_wait_seconds_total"),
        ),
    )


def _sglang(samples: _Samples, at: float) -> Reading:
    def total(*names: str, **labels: str) -> float | None:
        return samples.total(*(f"sglang:{name}" for name in names), **labels)

    gaps = ("inter_token_latency_seconds", "time_per_output_token_seconds")
    computed = total("realtime_tokens_total", mode="prefill_compute")
    cached = total("realtime_tokens_total", mode="prefill_cache")
    looked_up = None if computed is None and cached is None else (computed or 0.0) + (cached or 0.0)
    graph = total("cuda_graph_passes_total", mode="decode_cuda_graph")
    eager = total("cuda_graph_passes_total", mode="decode_none")
    decode_steps = None if graph is None and eager is None else (graph or 0.0) + (eager or 0.0)
    return Reading(
        at=at,
        engine="sglang",
        running=total("num_running_reqs") or 0.0,
        waiting=total("num_queue_reqs") or 0.0,
        kv_usage=samples.mean("sglang:full_token_usage", "sglang:token_usage"),
        kv_tokens=total("max_total_num_tokens"),
        totals=Totals(
            # The plain counters move when a request ends, the realtime ones while it runs.
            generated=_first(
                total("realtime_tokens_total", mode="decode"),
                total("generation_tokens_total"),
            ),
            prompt=_first(looked_up, total("prompt_tokens_total")),
            looked_up=looked_up,
            found=None if looked_up is None else cached or 0.0,
            preempted=total("num_retracted_requests_total"),
            steps=decode_steps,
            gap_seconds=total(*(f"{name}_sum" for name in gaps)),
            gaps=total(*(f"{name}_count" for name in gaps)),
            first_seconds=total("time_to_first_token_seconds_sum"),
            firsts=total("time_to_first_token_seconds_count"),
            queue_seconds=total("queue_time_seconds_sum"),
            queued=total("queue_time_seconds_count"),
            device_seconds=total("gpu_execution_seconds_total"),
            graph_steps=graph,
            eager_steps=eager,
        ),
    )


class _Samples:
    """Every sample of one text by its name. Raises ValueError where it is no Prometheus text."""

    def __init__(self, text: str) -> None:
        self._series: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if all(sample.labels.get(label, only) == only for label, only in _REPEATED.items()):
                    self._series.setdefault(sample.name, []).append((sample.labels, sample.value))

    @property
    def names(self) -> set[str]:
        return set(self._series)

    @property
    def prefixes(self) -> set[str]:
        return {name[: name.index(":") + 1] for name in self._series if ":" in name}

    def values(self, *names: str, **labels: str) -> list[float]:
        """Of the first name that is there: over engines, data-parallel ranks and reasons."""
        for name in names:
            if name in self._series:
                return [value for has, value in self._series[name] if labels.items() <= has.items()]
        return []

    def total(self, *names: str, **labels: str) -> float | None:
        values = self.values(*names, **labels)
        return sum(values) if values else None

    def mean(self, *names: str) -> float | None:
        values = self.values(*names)
        return sum(values) / len(values) if values else None

    def labels(self, name: str) -> list[Labels]:
        return [labels for labels, _ in self._series.get(name, [])]


def _pool(caches: list[Labels], blocks: str, size: str) -> float | None:
    """Tokens of all engines' pools."""
    try:
        return sum(int(cache[blocks]) * int(cache[size]) for cache in caches) or None
    except (KeyError, ValueError):
        return None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
