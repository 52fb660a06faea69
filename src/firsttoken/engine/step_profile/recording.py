"""Records some steps of an engine that is busy: lets a burst settle, records, and goes away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Protocol

from firsttoken.engine.step_plan import StepPlan
from firsttoken.types import SequenceOutput

log = logging.getLogger(__name__)

LEAD = 20  # steps of a burst before the recording: prompts are read in them, and what recording costs is told by them
UNMARKED = 5  # steps at the start of a recording that do not count: turning it on holds them up


@dataclass(frozen=True, slots=True)
class Recorded:
    """The marked steps' plans in order, None where a step queued nothing, and what writes the trace as JSON."""

    plans: list[StepPlan | None]
    plain_ms: float  # median of a step of the same burst before the recording
    save: Callable[[Path], None]


class Recorder(Protocol):
    """Records from `start` to `stop`, both called by the thread that steps.

    They raise RuntimeError where the machine does not let them.
    """

    def start(self) -> None: ...

    def mark(self, step: int) -> AbstractContextManager[object]:
        """The span of one step."""

    def stop(self) -> Callable[[Path], None]:
        """Gives what writes the trace as JSON, in any thread."""


class Stepper(Protocol):
    """What a recording needs of the engine."""

    @property
    def has_work(self) -> bool: ...

    @property
    def queued(self) -> StepPlan | None:
        """The plan that the last `step` queued."""

    def step(self) -> list[SequenceOutput]: ...


class StepRecording:
    """One recording of `steps` whole steps. Its `step` stands in for the engine's until `done`.

    A burst that ends too early to show two steps is forgotten, and the next one waited for; one that ends later is kept
    with the steps that it had. What is recorded goes to `keep`, in the caller's thread.
    """

    def __init__(
        self,
        steps: int,
        new_recorder: Callable[[], Recorder],
        keep: Callable[[Recorded], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.done = False
        self._steps = steps
        self._new_recorder = new_recorder
        self._keep = keep
        self._clock = clock
        self._begins: list[float] = []  # of this burst's steps before the recording
        self._recorder: Recorder | None = None
        self._unmarked = 0
        self._plans: list[StepPlan | None] = []

    def step(self, engine: Stepper) -> list[SequenceOutput]:
        """As the engine's. Raises what that raises; a profiler that cannot record only ends the recording."""
        if self._recorder is None and len(self._begins) > LEAD and not self._start():
            return engine.step()
        if self._recorder is None:
            self._begins.append(self._clock())
            outputs = engine.step()
        elif self._unmarked < UNMARKED:
            self._unmarked += 1
            outputs = engine.step()
        else:
            with self._recorder.mark(len(self._plans)):
                outputs = engine.step()
            self._plans.append(engine.queued)
        # One step more than asked for: its beginning is the last one's end.
        if len(self._plans) > self._steps or not engine.has_work:
            self._stop()
        return outputs

    def _start(self) -> bool:
        self._recorder = self._new_recorder()
        try:
            self._recorder.start()
        except RuntimeError as error:
            self._give_up(error)
        return not self.done

    def _stop(self) -> None:
        recorder, plans = self._recorder, self._plans
        plain = [end - start for start, end in pairwise(self._begins)]
        self._recorder, self._plans, self._unmarked, self._begins = None, [], 0, []
        if recorder is None:
            return
        try:
            save = recorder.stop()
        except RuntimeError as error:
            self._give_up(error)
            return
        if len(plans) > 1:
            self.done = True
            self._keep(Recorded(plans, median(plain) * 1e3, save))

    def _give_up(self, error: RuntimeError) -> None:
        log.warning("steps could not be recorded: %s", error)
        self.done = True
