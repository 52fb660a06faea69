"""What a person sees while a run goes on: a bar with figures in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from firsttoken.bench import units
from firsttoken.bench.events import Event, Note, Progress, ScenarioFinished, ScenarioStarted
from firsttoken.bench.records import ScenarioResult
from firsttoken.bench.table import typical, worst_level

_QUIET = 10.0  # seconds between lines where there is no terminal


class LiveView:
    """Takes a run's events and shows them. A context manager; the terminal is left clean whatever happens.

    It draws only when an event comes, a few times a second, so that it costs the client next to nothing.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._spoken = -_QUIET
        self._label = ""
        self._bar: Bar | None = None
        if console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[figures]}"),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task("", total=None, figures="", visible=False)

    def __enter__(self) -> LiveView:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case Note():
                self._print(event.text)
            case ScenarioStarted():
                self._label = f"[{event.number}/{event.of}] {event.name}, {event.load}"
                self._start(event)
            case Progress():
                self._progress(event)
            case ScenarioFinished():
                self._finish(event)

    def _start(self, event: ScenarioStarted) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task, description=self._label, total=event.planned, completed=0, figures="", visible=True
            )
            self._bar.refresh()
        else:
            self._print(self._label)
            self._spoken = self._clock()

    def _progress(self, event: Progress) -> None:
        figures = figures_of(event)
        if self._bar is not None:
            warming = event.phase == "warm-up"
            self._bar.update(
                self._task, total=None if warming else event.planned, completed=event.finished, figures=figures
            )
            self._bar.refresh()
        elif self._clock() - self._spoken >= _QUIET:
            self._spoken = self._clock()
            self._print(f"  {figures}")

    def _finish(self, event: ScenarioFinished) -> None:
        if self._bar is not None:
            self._bar.update(self._task, visible=False)
        self._print(summary(event.result, event.resumed))

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


def figures_of(event: Progress) -> str:
    """ "12/20 · 1,240 tok/s · TTFT 35.1 ms · 14 s left"."""
    if event.phase == "warm-up":
        return f"warming up, {event.finished} done"
    parts = [f"{event.finished}/{event.planned}" if event.planned else f"{event.finished} done"]
    if event.failed:
        parts.append(f"{event.failed} failed")
    if event.finished and event.elapsed > 0:
        parts.append(f"{units.rate(event.output_tokens / event.elapsed)} tok/s")
    if event.ttft is not None:
        parts.append(f"TTFT {units.seconds(event.ttft)}")
    if event.planned and 0 < event.finished < event.planned:
        left = event.elapsed / event.finished * (event.planned - event.finished)
        parts.append(f"{left:,.0f} s left")
    return " · ".join(parts)


def summary(result: ScenarioResult, resumed: bool = False) -> str:
    """One line for a scenario that has ended."""
    head = f"{result.name}, {result.load.label}:"
    metrics = result.metrics
    if metrics is None or not metrics.succeeded:
        return f"{head} no answer was measured"
    parts = [
        f"TTFT {typical(metrics.ttft)}",
        f"TPOT {typical(metrics.tpot)}",
        f"{units.rate(metrics.output_tokens_per_s)} tok/s",
        f"{metrics.succeeded}/{metrics.attempted} answered",
    ]
    level = worst_level(result.checks)
    if level != "ok":
        parts.append("flagged" if level == "flag" else "a self-check FAILED")
    if not result.complete:
        parts.append("broken off")
    if resumed:
        parts.append("from the earlier run")
    return f"{head} {' · '.join(parts)}"
