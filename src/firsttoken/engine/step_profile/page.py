"""The page that sums a recording up, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from firsttoken.engine.step_profile.work import Work
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.traces.summary import LONG_GAP, Summary
from firsttoken.types import EngineInfo

_GAPS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Page:
    """What one page tells. `plain_ms`: median of a step of the same burst before the recording."""

    info: EngineInfo
    when: str
    trace_name: str
    summary: Summary
    work: Work
    plain_ms: float
    ceilings: Ceilings | None  # None: nobody has measured them

    def text(self) -> str:
        parts = [self._head(), self._time(), self._rates(), self._ops(), self._gaps(), self._notes()]
        return "\n".join(part for part in parts if part)

    def _head(self) -> str:
        info, work = self.info, self.work
        steps = max(1, work.steps)
        return (
            f"# {self.summary.steps} steps of {info.model}\n\n"
            f"{self.when}, {info.device_name}, {info.weights}. A step ran {work.rows / steps:.4g} sequences and "
            f"{work.tokens / steps:.5g} new tokens over contexts of {work.context / max(1, work.rows):,.0f} tokens "
            f"each. The trace is `{self.trace_name}`; ui.perfetto.dev and chrome://tracing show it.\n"
        )

    def _time(self) -> str:
        summary = self.summary
        wall = summary.wall
        walls = summary.walls
        rows = [
            ("wall, mean", _ms(wall / summary.steps), ""),
            ("wall, shortest and longest", f"{_ms(min(walls))}, {_ms(max(walls))}", ""),
            ("wall without recording, median of the steps before", _ms(self.plain_ms * 1e3), ""),
        ]
        if not summary.on_gpu:
            rows.append(("in torch's ops", *self._time_and_share(summary.busy)))
            rows.append(("outside of them", *self._time_and_share(wall - summary.busy)))
        else:
            long_gaps = f"of both, in gaps over {LONG_GAP:.0f} µs ({summary.long_gaps / summary.steps:.2f} a step)"
            rows += [
                ("GPU busy", *self._time_and_share(summary.busy)),
                ("idle between steps", *self._time_and_share(summary.idle_between_steps)),
                ("idle within steps", *self._time_and_share(summary.idle_within_steps)),
                (long_gaps, *self._time_and_share(summary.long_gap_time)),
            ]
        return "## Time\n\n" + _table(("", "a step", "share of the wall"), rows)

    def _rates(self) -> str:
        steps, seconds = max(1, self.work.steps), self.summary.wall / self.summary.steps / 1e6
        num_bytes, flops = self.work.num_bytes / steps, self.work.flops / steps
        read = None if self.ceilings is None else self.ceilings.read
        rows = [
            ("reads", _amount(num_bytes, "B"), *_rate(num_bytes / seconds, read, "B/s")),
            ("computes", _amount(flops, "FLOP"), *self._products(flops / seconds)),
        ]
        said = (
            "The least that a step must read (weights once, each context's keys and values once) and compute, by the "
            "model's shapes, over its wall."
        )
        table = _table(("", "a step", "achieved", "ceiling", "share"), rows)
        return f"## Beside the ceilings\n\n{said}\n\n{table}"

    def _products(self, achieved: float) -> tuple[str, str, str]:
        if self.info.device == "cpu":  # its forms of a product differ too much in width
            return _amount(achieved, "FLOP/s"), "a CPU has no single one", ""
        return _rate(achieved, None if self.ceilings is None else self.ceilings.product, "FLOP/s")

    def _ops(self) -> str:
        summary = self.summary
        rows = [
            (
                op.name,
                f"{op.calls / summary.steps:.4g}",
                f"{op.total / summary.steps:.1f}",
                f"{op.own / summary.steps:.1f}",
                f"{op.own / summary.wall:.1%}",
            )
            for op in summary.ops
        ]
        head = ("op", "calls a step", "µs a step", "own µs a step", "own share of the wall")
        return "## By op\n\n" + _table(head, rows)

    def _gaps(self) -> str:
        summary = self.summary
        if not summary.on_gpu or not summary.gaps:
            return ""
        rows = [
            (
                f"{gap.after or 'the beginning'} → {gap.before}",
                "between steps" if gap.between_steps else "within a step",
                f"{gap.times / summary.steps:.4g}",
                f"{gap.total / summary.steps:.2f}",
            )
            for gap in summary.gaps[:_GAPS_SHOWN]
        ]
        return "## Where nothing ran\n\n" + _table(("from → to", "", "times a step", "µs a step"), rows)

    def _notes(self) -> str:
        if self.summary.on_gpu:
            notes = [
                "Recording slows each kernel down a little: compare the two walls above.",
                "Kernels overlap where the next one is launched early and waits within, its first weights under way: "
                "such a wait counts as busy, and the sum of `µs` can pass the wall. `own µs` counts each moment once, "
                "for the op that began first; its sum is the busy time, the union of all intervals.",
            ]
        else:
            notes = [
                "These are torch's outermost ops on the host. firsttoken's compiled CPU kernels are called past torch: "
                "their time is outside of them, like that of Python and of waiting.",
                "Ops of two threads can overlap: `own µs` counts each moment once, for the op that began first.",
            ]
        if not self.summary.on_gpu and self.info.device != "cpu":
            notes.insert(0, "**No kernel was recorded**: the driver or the container does not let CUPTI trace.")
        return "## How to read this\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"

    def _time_and_share(self, time: float) -> tuple[str, str]:
        return f"{time / self.summary.steps:.1f} µs", f"{time / self.summary.wall:.2%}"


def _ms(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3f} ms"


def _rate(achieved: float, ceiling: float | None, unit: str) -> tuple[str, str, str]:
    if ceiling is None:
        return _amount(achieved, unit), "not measured here; `firsttoken bench run` does", ""
    return _amount(achieved, unit), _amount(ceiling, unit), f"{achieved / ceiling:.1%}"


def _amount(value: float, unit: str) -> str:
    scale, prefix = (1e12, "T") if value >= 1e11 else (1e9, "G")
    return f"{value / scale:.3g} {prefix}{unit}"


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    head = list(head)
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
