"""Writes what was recorded: the trace and its page, in a thread beside the steps."""

from __future__ import annotations

import gzip
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from firsttoken.config import EngineConfig
from firsttoken.engine.step_profile.page import Page
from firsttoken.engine.step_profile.recorder import TorchRecorder
from firsttoken.engine.step_profile.recording import Recorded, StepRecording
from firsttoken.engine.step_profile.work import work_of
from firsttoken.errors import ConfigError
from firsttoken.machine.ceilings import known_memory_ceiling
from firsttoken.machine.gpu import Gpu, read_gpus
from firsttoken.machine.gpu_ceilings import Ceilings, host_ceilings, known_ceilings
from firsttoken.model.config import load_config
from firsttoken.traces.chrome import read_chrome
from firsttoken.traces.summary import summarise
from firsttoken.types import EngineInfo

log = logging.getLogger(__name__)


def recordings(config: EngineConfig, info: EngineInfo) -> Callable[[], StepRecording]:
    """What starts a recording as the configuration says; its files are written while the steps go on."""
    assert config.profile_steps is not None
    steps, on_gpu = config.profile_steps, info.device != "cpu"

    def write(recorded: Recorded) -> None:
        try:
            page = keep(recorded, config, info)
        except Exception:
            # Nobody waits for the files, and the engine can go on without them.
            log.exception("what was recorded could not be written to %s", config.profile_dir)
        else:
            log.info("recorded steps: %s and %s", page, page.with_suffix(".trace.json.gz"))

    def write_in_thread(recorded: Recorded) -> None:
        threading.Thread(target=write, args=(recorded,), name="profile", daemon=True).start()

    return lambda: StepRecording(steps, lambda: TorchRecorder(on_gpu=on_gpu), write_in_thread)


def remembered_ceilings(
    info: EngineInfo,
    list_gpus: Callable[[], list[Gpu]] = read_gpus,
    known: Callable[[Gpu], Ceilings | None] = known_ceilings,
) -> Ceilings | None:
    """What an earlier benchmark has found out about the engine's device. Nothing is measured beside running steps."""
    if info.device == "cpu":
        memory = known_memory_ceiling()
        return None if memory is None else host_ceilings(memory)
    try:
        return next((known(gpu) for gpu in list_gpus() if gpu.name == info.device_name), None)
    except ConfigError:  # no home: nothing is remembered
        return None


def keep(
    recorded: Recorded,
    config: EngineConfig,
    info: EngineInfo,
    ceilings: Callable[[EngineInfo], Ceilings | None] = remembered_ceilings,
) -> Path:
    """Writes `steps-TIME.trace.json.gz` and `steps-TIME.md`, and returns the latter.

    Raises OSError, or ValueError for a trace that shows no two steps.
    """
    assert config.profile_dir is not None
    folder = Path(config.profile_dir)
    folder.mkdir(parents=True, exist_ok=True)
    stem = time.strftime("steps-%Y%m%d-%H%M%S")
    raw, trace = folder / f"{stem}.trace.json", folder / f"{stem}.trace.json.gz"
    try:
        recorded.save(raw)
        with raw.open("rb") as plain, gzip.open(trace, "wb", compresslevel=5) as packed:
            while piece := plain.read(1 << 20):
                packed.write(piece)
        summary = summarise(read_chrome(raw))
    finally:
        raw.unlink(missing_ok=True)
    if summary is None:
        raise ValueError(f"{trace} shows no two steps")
    plans = [plan for plan in recorded.plans[: summary.steps] if plan is not None]
    page = Page(
        info=info,
        when=time.strftime("%Y-%m-%d %H:%M:%S"),
        trace_name=trace.name,
        summary=summary,
        work=work_of(plans, load_config(config.path), info),
        plain_ms=recorded.plain_ms,
        ceilings=ceilings(info),
    )
    written = folder / f"{stem}.md"
    written.write_text(page.text())
    return written
