"""`GET /metrics`: the engine's own numbers in Prometheus' text form, under vLLM's names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from firsttoken.errors import Unavailable
from firsttoken.server.service import Service
from firsttoken.wire import EngineStats

_STATES = ("loading", "ready", "draining", "dead")


class EngineCollector:
    """One reading of one engine, labelled with the model's name."""

    def __init__(self, prefix: str, model: str, state: str, stats: EngineStats) -> None:
        self._prefix = prefix
        self._model = model
        self._state = state
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        labels, values = ["model_name"], [self._model]
        state = GaugeMetricFamily(f"{self._prefix}:engine_state", "1 for the state it is in.", labels=["state"])
        for name in _STATES:
            state.add_metric([name], float(name == self._state))
        yield state
        for name, value in self._stats.gauges.items():
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
        for name, histogram in self._stats.histograms.items():
            family = HistogramMetricFamily(self._named(name), _help(name), labels=labels)
            bounds = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
            family.add_metric(values, list(zip(bounds, map(float, histogram.counts), strict=True)), histogram.total)
            yield family

    def _named(self, name: str) -> str:
        return f"{self._prefix}:{name}"


def _help(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."


async def metrics(service: Service) -> Response:
    """Before the engine is there, and after it is gone, its state alone is told."""
    backend = service.backend
    stats = EngineStats()
    if backend.info is not None:
        try:
            stats = await backend.stats()
        except Unavailable:
            stats = EngineStats()
    model = service.names(backend.info)[0] if backend.info is not None else ""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(service.config.metrics_prefix, model, backend.state, stats))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
