"""torch's profiler, as far as a recording of steps needs it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from torch._C._profiler import _ExperimentalConfig
from torch.autograd import profiler

from firsttoken.traces.trace import MARK


class TorchRecorder:
    """A `Recorder`, for one recording.

    `torch.profiler.profile` is left alone: its start imports Inductor, which takes seconds in which no step would run.
    """

    def __init__(self, *, on_gpu: bool) -> None:
        self._profile = profiler.profile(
            use_device="cuda" if on_gpu else None,
            use_kineto=True,
            # On a CPU the ops run in a thread of their own.
            experimental_config=_ExperimentalConfig(profile_all_threads=not on_gpu),
        )

    def start(self) -> None:
        self._profile.__enter__()

    def mark(self, step: int) -> AbstractContextManager[object]:
        return profiler.record_function(f"{MARK} {step}")

    def stop(self) -> Callable[[Path], None]:
        self._profile.__exit__(None, None, None)
        return lambda path: self._profile.export_chrome_trace(str(path))
