"""Results with given figures, as runs of two sides would leave them."""

from __future__ import annotations

from firsttoken.bench.records import Distribution, LoadSpec, Metrics, RequestRecord, RunResult, ScenarioResult

LOAD = LoadSpec(concurrency=16, requests=64)


def distribution(p50: float) -> Distribution:
    return Distribution(count=64, mean=p50, p50=p50)


def metrics(ttft: float, tpot: float, e2e: float, rate: float) -> Metrics:
    return Metrics(
        attempted=64,
        succeeded=64,
        failed=0,
        duration=10.0,
        ttft=distribution(ttft),
        ttft_scheduled=None,
        tpot=distribution(tpot),
        gaps=distribution(tpot),
        worst_gap=distribution(tpot),
        e2e=distribution(e2e),
        e2e_scheduled=None,
        send_lag=None,
        prompt_tokens=64 * 512,
        output_tokens=64 * 256,
        cached_tokens=0,
        output_tokens_per_s=rate,
        total_tokens_per_s=None,
        requests_per_s=6.4,
        decode_tokens_per_s=1 / tpot,
        max_in_flight=16,
    )


def scenario(
    name: str = "steady",
    *,
    ttft: float = 0.02,
    tpot: float = 0.004,
    e2e: float = 1.0,
    rate: float = 3500.0,
    load: LoadSpec = LOAD,
    prompt_tokens: int = 512,
    max_tokens: int = 256,
    complete: bool = True,
) -> ScenarioResult:
    record = RequestRecord(id=f"{name}-0", scenario=name, phase="measured", stream=0, sent=100.0, ended=110.0)
    record.prompt_tokens, record.max_tokens = prompt_tokens, max_tokens
    return ScenarioResult(
        name=name,
        scenario=name,
        load=load,
        started=100.0,
        ended=110.0,
        complete=complete,
        records=[record],
        metrics=metrics(ttft, tpot, e2e, rate),
    )


def run(*scenarios: ScenarioResult, ready: float | None = 5.0, model: str = "m") -> RunResult:
    return RunResult(model=model, ready_seconds=ready, scenarios=list(scenarios) or [scenario()])
