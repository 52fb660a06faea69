"""`GET /metrics`: the engine's own numbers in Prometheus' text form, under vLLM's names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from firsttoken.errors import Unavailable
from firsttoken.server.service import Service
from firsttoken.types import EngineInfo
from firsttoken.wire import EngineStats

Value = TypeVar("Value")

# vLLM's earlier names of the same numbers, which its own dashboard still asks for
_EARLIER = {
    "kv_cache_usage_perc": "gpu_cache_usage_perc",
    "inter_token_latency_seconds": "time_per_output_token_seconds",
}
_PATIENCE = 9.0  # seconds for the engine to answer: Prometheus waits 10
_STATES = ("loading", "ready", "draining", "hung", "dead")


class EngineCollector:
    """One reading of one engine, labelled as vLLM's: with the model's name and the engine's number.

    Where no engine is there yet, `info` is None and `stats` are empty.
    """

    def __init__(self, prefix: str, model: str, state: str, info: EngineInfo | None, stats: EngineStats) -> None:
        self._prefix = prefix
        self._model = model
        self._state = state
        self._info = info
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        labels, values = ["model_name", "engine"], [self._model, "0"]
        state = GaugeMetricFamily(f"{self._prefix}:engine_state", "1 for the state it is in.", labels=["state"])
        for name in _STATES:
            state.add_metric([name], float(name == self._state))
        yield state
        if self._info is not None:
            yield self._cache_config(self._info)
        for name, value in _with_earlier_names(self._stats.gauges):
            gauge = GaugeMetricFamily(self._named(name), _help(name), labels=labels)
            gauge.add_metric(values, value)
            yield gauge
        for name, value in self._stats.counters.items():
            counter = CounterMetricFamily(self._named(name), _help(name), labels=labels)
            counter.add_metric(values, value)
            yield counter
        finished = CounterMetricFamily(
            self._named("request_success"), "Finished requests by reason.", labels=[*labels, "finished_reason"]
        )
        for reason, count in self._stats.finished.items():
            finished.add_metric([*values, reason], count)
        yield finished
        for name, histogram in _with_earlier_names(self._stats.histograms):
            family = HistogramMetricFamily(self._named(name), _help(name), labels=labels)
            bounds = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
            family.add_metric(values, list(zip(bounds, map(float, histogram.counts), strict=True)), histogram.total)
            yield family

    def _cache_config(self, info: EngineInfo) -> Metric:
        """The KV pool's shape, as labels of a constant 1."""
        labels = {
            "engine": "0",
            "block_size": str(info.block_size),
            "num_gpu_blocks": str(info.num_blocks),
            "cache_dtype": info.kv_dtype or info.dtype,
        }
        gauge = GaugeMetricFamily(self._named("cache_config_info"), "The KV cache's shape.", labels=list(labels))
        gauge.add_metric(list(labels.values()), 1.0)
        return gauge

    def _named(self, name: str) -> str:
        return f"{self._prefix}:{name}"


def _with_earlier_names(metrics: dict[str, Value]) -> Iterator[tuple[str, Value]]:
    for name, value in metrics.items():
        yield name, value
        if name in _EARLIER:
            yield _EARLIER[name], value


def _help(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."


async def metrics(service: Service) -> Response:
    """Before the engine is there, while it does not answer and after it is gone, its state alone is told."""
    backend = service.backend
    stats = EngineStats()
    if backend.info is not None:
        try:
            stats = await asyncio.wait_for(backend.stats(), _PATIENCE)
        except (Unavailable, TimeoutError):
            stats = EngineStats()
    model = service.names(backend.info)[0] if backend.info is not None else ""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(service.config.metrics_prefix, model, backend.state, backend.info, stats))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
