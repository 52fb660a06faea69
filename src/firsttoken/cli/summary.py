"""What `serve` prints: progress while it starts, a summary once it is ready, and what happens later."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from firsttoken.types import EngineInfo
from firsttoken.version import __version__

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Report:
    """Progress goes to stderr: a bar in a terminal, one line a phase elsewhere. The summary goes to stdout."""

    def __init__(self, url: str, launched: float, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        """`launched` is the time.monotonic() of the process's birth."""
        self._url = url
        self._launched = launched
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._spawned = launched
        self._phase = ""
        self._bar: tuple[Progress, TaskID] | None = None

    def spawned(self) -> None:
        """Every child has been started."""
        self._spawned = time.monotonic()

    def progress(self, phase: str, fraction: float) -> None:
        if self._err.isatty():
            self._show_bar(phase, fraction)
        elif phase != self._phase:
            self._say(f"Loading: {phase} ({fraction:.0%})")
        self._phase = phase

    def ready(self, info: EngineInfo, workers_after: float) -> None:
        self._end_bar()
        now = time.monotonic()
        phases = {"launch": self._spawned - self._launched, **info.phases, "API workers": workers_after}
        text = summary(info, self._url, now - self._launched, phases)
        print(text, file=self._out, flush=True)

    def page(self, address: str) -> None:
        self._end_bar()
        print(f"The chat page is at {address}", file=self._out, flush=True)

    def note(self, text: str) -> None:
        self._end_bar()
        self._say(text)

    def error(self, text: str) -> None:
        self._end_bar()
        self._say(f"Error: {text}")

    def _say(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    def _show_bar(self, phase: str, fraction: float) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            bar = Progress(*columns, console=Console(file=self._err), transient=True, auto_refresh=False)
            self._bar = bar, bar.add_task("", total=1.0)
            bar.start()
        bar, task = self._bar
        bar.update(task, description=f"Loading: {phase}", completed=fraction, refresh=True)

    def _end_bar(self) -> None:
        if self._bar:
            self._bar[0].stop()
            self._bar = None


def summary(info: EngineInfo, url: str, total: float, phases: dict[str, float]) -> str:
    """A few lines that say what runs, how much it holds, and where the start's time went."""
    kv_tokens = info.num_blocks * info.block_size
    kv_form = ", ".join(text for text in (info.kv_dtype, info.kv_note) if text)
    phases = {**phases, "other": total - sum(phases.values())}
    longest = [(name, seconds) for name, seconds in phases.items() if seconds >= 0.05]
    rows = {
        "model": f"{info.model} ({info.architecture})",
        "device": f"{info.device} ({info.device_name})",
        "activations": info.dtype,
        "weights": f"{_size(info.weight_bytes)} read a token; {info.weights}",  # which may end in a sentence
        "attention": info.attention,
        "KV cache": f"{kv_tokens:,} tokens in {info.num_blocks:,} blocks of {info.block_size}, "
        f"{_size(kv_tokens * info.kv_bytes_per_token)}" + (f"; {kv_form}" if kv_form else ""),
        "longest context": f"{info.max_model_len:,} tokens",
        "at once": f"up to {info.max_num_seqs:,} sequences",
        "ready in": f"{total:.2f} s: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in longest),
    }
    lines = [f"firsttoken {__version__} serves {info.model} at {url}/v1"]
    lines += [f"  {name:<16}{value}" for name, value in rows.items()]
    return "\n".join(lines)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def process_birth() -> float:
    """time.monotonic() at which this process was started, interpreter included; now where /proc does not tell."""
    now = time.monotonic()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return now - max(0.0, uptime - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return now
