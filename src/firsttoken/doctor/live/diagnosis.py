"""Everything that one window told, as a person or a program reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firsttoken.doctor.live.judge import Finding, judge
from firsttoken.doctor.live.reading import Window
from firsttoken.doctor.live.remedy import Remedy, remedy
from firsttoken.doctor.live.sensed import Sensed
from firsttoken.doctor.live.work import Bounds


@dataclass(frozen=True, slots=True)
class Diagnosis:
    window: Window
    bounds: Bounds
    sensors: Sensed | None
    finding: Finding
    remedy: Remedy

    def figures(self) -> dict[str, float | None]:
        """By name, with units in the names; what is unknown is None."""
        window, load, added = self.window, self.finding.load, self.window.added
        seconds = window.seconds
        per_second = {
            "prefill_tokens_per_s": window.computed,
            "decode_tokens_per_s": added.generated,
            "preemptions_per_s": added.preempted,
            "steps_per_s": added.steps,
        }
        ceilings = self.bounds.ceilings
        return {
            "requests_running": window.running,
            "requests_waiting": window.waiting,
            "active_share": window.active,
            "kv_cache_usage": window.kv_usage,
            "prefix_cache_hit_rate": window.hit_rate,
            **{name: None if value is None else value / seconds for name, value in per_second.items()},
            "step_s": window.step_seconds,
            "tokens_per_step": window.tokens_per_step,
            "tpot_s": window.tpot,
            "ttft_s": window.ttft,
            "queue_s": window.queue_time,
            "host_waits_for_device_share": window.waited,
            "device_busy_share": window.device_busy,
            "read_bytes_per_s": None if load is None else load.read_bytes,
            "flops_per_s": None if load is None else load.flops,
            "read_ceiling_bytes_per_s": None if ceilings is None else ceilings.read,
            "product_ceiling_flops_per_s": None if ceilings is None else ceilings.product,
            "memory_share": None if load is None else load.memory_share,
            "compute_share": None if load is None else load.compute_share,
            "gpu_kernels_share": None if self.sensors is None else self.sensors.kernels,
            "gpu_sm_clock_mhz": None if self.sensors is None else self.sensors.sm_clock_mhz,
            "gpu_power_w": None if self.sensors is None else self.sensors.power_w,
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "engine": self.window.engine,
            "seconds": self.window.seconds,
            "verdict": self.finding.verdict,
            "evidence": list(self.finding.evidence),
            "change": self.remedy.change,
            "predicted_gain": self.remedy.gain,
            "predicted_gain_of": None if self.remedy.gain is None else self.remedy.of,
            "predicted_gain_at_most": self.remedy.at_most,
            "predicted_from": None if self.remedy.gain is None else self.remedy.basis,
            "unknown": list(self.bounds.missing),
            "figures": self.figures(),
        }


def diagnose(window: Window, bounds: Bounds, sensors: Sensed | None = None) -> Diagnosis:
    """Pure."""
    finding = judge(window, bounds, sensors)
    return Diagnosis(window, bounds, sensors, finding, remedy(finding, window, bounds, sensors))
