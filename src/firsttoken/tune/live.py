"""What a person sees while a session goes on: the stage, what runs, what is known so far, and the time left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from firsttoken.bench import events, units
from firsttoken.bench.live import figures_of
from firsttoken.tune.arms import named
from firsttoken.tune.lab import Event, Said, Stage, Tried, Trying

_SHOWN = 6  # last runs


class LiveView:
    """Takes the session's events and a run's. A context manager; the terminal is left clean whatever happens."""

    def __init__(
        self, console: Console, budget: float, unit: Callable[[float], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`unit` shows a value of the objective."""
        self._console, self._budget, self._unit, self._clock = console, budget, unit, clock
        self._spent, self._run_began = 0.0, 0.0
        self._stage = self._running = self._progress = ""
        self._recent: list[tuple[str, str, str]] = []
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Of the session."""
        match event:
            case Stage(_, text):
                self._stage = text
                self._say(f"[{_clock(self._spent)} of {_clock(self._budget)}] {text}")
            case Trying(number, config):
                self._running, self._run_began = f"run {number}: {named(config)}", self._clock()
                self._progress = "starting"
            case Tried(number, config, run, spent, again):
                self._spent, self._running = spent, ""
                shown = self._unit(run.value) if run.value is not None else "failed"
                self._recent = [*self._recent, (str(number), named(config), shown)][-_SHOWN:]
                if self._live is None and not again:
                    self._say(f"  run {number}: {named(config)}: {shown} ({run.seconds:.1f} s)")
            case Said(text):
                self._say(f"  {text}")
        self._draw()

    def bench(self, event: events.Event) -> None:
        """Of the run that is going on."""
        if isinstance(event, events.Progress):
            self._progress = figures_of(event)
            self._draw()

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _draw(self) -> None:
        if self._live is None:
            return
        table = Table.grid(padding=(0, 2))
        for number, config, shown in self._recent:
            table.add_row(number, config, shown)
        used = self._spent + (self._clock() - self._run_began if self._running else 0.0)
        left = max(self._budget - used, 0.0)
        head = Text(f"{self._stage} · {math.ceil(left / 60)} min left", style="bold")
        lines: list[Text | Table] = [head, table]
        if self._running:
            lines.append(Text(f"{self._running} · {self._progress}"))
        self._live.update(Group(*lines), refresh=True)


def unit_of(is_time: bool) -> Callable[[float], str]:
    """Shows a time or a rate."""
    return units.seconds if is_time else units.rate


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"
