"""A run as two CSV files for a spreadsheet: one line a scenario, and one line a request. Seconds and tokens."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from firsttoken.bench.energy import scenario_usage
from firsttoken.bench.metrics import e2e, gaps, output_tokens, tpot, ttft, ttft_scheduled, worst_token_gap
from firsttoken.bench.records import CeilingShare, Distribution, Metrics, RequestRecord, RunResult, ScenarioResult

_SUMMARY = ("count", "mean", "minimum", "p50", "p90", "p99", "maximum")
_DISTRIBUTIONS = (
    "ttft",
    "ttft_scheduled",
    "tpot",
    "gaps",
    "worst_gap",
    "worst_token_gap",
    "e2e",
    "e2e_scheduled",
    "send_lag",
)
_NUMBERS = (
    "attempted",
    "succeeded",
    "failed",
    "duration",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "requests_per_s",
    "decode_tokens_per_s",
    "max_in_flight",
    "goodput_per_s",
    "goodput_share",
)
_USAGE = (
    "gpu_percent",
    "vram_bytes",
    "power_w",
    "energy_j_per_token",
    "sm_clock_mhz",
    "host_cpu_percent",
    "server_cores",
    "server_rss_bytes",
    "client_cores",
)
_FIGURES: tuple[Literal["ttft", "tpot", "output_tokens_per_s"], ...] = ("ttft", "tpot", "output_tokens_per_s")

Cell = str | int | float | None


def write_csv(path: Path, result: RunResult) -> tuple[Path, Path]:
    """Writes `path` with the scenarios and, beside it, `<stem>.requests.csv`; returns both names."""
    requests = path.with_name(path.stem + ".requests.csv")
    rows = [row for scenario in result.scenarios for row in scenario_rows(result, scenario)]
    _write(path, rows)
    _write(requests, [request_row(record) for scenario in result.scenarios for record in scenario.records])
    return path, requests


def scenario_rows(result: RunResult, scenario: ScenarioResult) -> list[dict[str, Cell]]:
    """One row for a scenario, and one for each of its groups, which have latencies of their own."""
    groups = [_row(result, scenario, group, found, []) for group, found in scenario.group_metrics.items()]
    return [_row(result, scenario, "", scenario.metrics, scenario.shares), *groups]


def _row(
    result: RunResult, scenario: ScenarioResult, group: str, metrics: Metrics | None, found: Sequence[CeilingShare]
) -> dict[str, Cell]:
    """Every figure under a name of its own; an unknown one is empty."""
    load = scenario.load
    row: dict[str, Cell] = {
        "model": result.model,
        "server": f"{result.server.kind} {result.server.version}".strip(),
        "scenario": scenario.name,
        "group": group,
        "load": load.label,
        "concurrency": load.concurrency,
        "rate": load.rate,
        "complete": str(scenario.complete).lower(),
        "ready_seconds": result.ready_seconds,
    }
    row |= {name: getattr(metrics, name) if metrics else None for name in _NUMBERS}
    for name in _DISTRIBUTIONS:
        one: Distribution | None = getattr(metrics, name) if metrics else None
        row |= {f"{name}_{part}": getattr(one, part) if one else None for part in _SUMMARY}
    shares = {share.figure: share for share in found}
    for figure in _FIGURES:
        share = shares.get(figure)
        row[f"{figure}_ceiling"] = share.ceiling if share else None
        row[f"{figure}_share"] = share.share if share else None
    used = scenario_usage(scenario, result.samples)
    row |= {name: None if group else getattr(used, name) for name in _USAGE}
    row["flags"] = " | ".join(check.text for check in scenario.checks if check.level == "flag")
    row["failures"] = " | ".join(check.text for check in scenario.checks if check.level == "fail")
    return row


def request_row(record: RequestRecord) -> dict[str, Cell]:
    return {
        "scenario": record.scenario,
        "id": record.id,
        "phase": record.phase,
        "group": record.group,
        "stream": record.stream,
        "turn": record.turn,
        "client": record.client,
        "intended": record.intended,
        "sent": record.sent,
        "ended": record.ended,
        "status": record.status,
        "error": record.error,
        "ttft": ttft(record),
        "ttft_scheduled": ttft_scheduled(record),
        "tpot": tpot(record),
        "worst_gap": max(gaps(record), default=None),
        "worst_token_gap": worst_token_gap(record),
        "e2e": e2e(record),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": output_tokens(record),
        "chunks": len(record.chunks),
        "token_source": record.token_source,
        "finish_reason": record.finish_reason,
    }


def _write(path: Path, rows: list[dict[str, Cell]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A byte order mark, since Excel reads Chinese as something else without one.
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows({name: _plain(cell) for name, cell in row.items()} for row in rows)


def _plain(cell: Cell) -> Cell:
    """A text that a spreadsheet would take for a formula gets an apostrophe: servers choose their own error texts."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
