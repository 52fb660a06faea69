"""The roofline as a check of each scenario: learns what the model costs and what its machine can do, then judges."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from firsttoken.bench.model_costs import ModelCosts, find_model_costs, read_model_costs
from firsttoken.bench.records import Check, RunResult, ScenarioResult
from firsttoken.bench.roofline import Roofline, judge_scenario
from firsttoken.bench.sources import is_local
from firsttoken.errors import ConfigError
from firsttoken.machine.ceilings import MemoryCeiling, memory_ceiling
from firsttoken.machine.gpu import Gpu, read_gpus
from firsttoken.machine.gpu_ceilings import Ceilings, gpu_ceilings, host_ceilings


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRates:
    """Ceilings that the user knows; None is measured."""

    read: float | None = None  # bytes a second
    copy: float | None = None
    product: float | None = None  # FLOP/s

    @property
    def enough(self) -> bool:
        return self.read is not None and self.product is not None


class FindCeilings(Protocol):
    """Ceilings of a device by the server's name for it, or why they are unknown; `again` measures anew."""

    def __call__(self, device: str, *, again: bool = False) -> Ceilings | str: ...


class MachineCeilings:
    """The ceilings of whatever device serves, measured here or given."""

    def __init__(
        self,
        url: str,
        given: GivenRates | None = None,
        devices: int = 1,
        *,
        list_gpus: Callable[[], list[Gpu]] = read_gpus,
        measure_gpu: Callable[[Gpu, bool], Ceilings] = lambda gpu, again: gpu_ceilings(gpu, refresh=again),
        measure_memory: Callable[[], MemoryCeiling] = memory_ceiling,
    ) -> None:
        """`devices`: over how many GPUs the model is split evenly; given rates are those of one."""
        self._local = is_local(url)
        self._given = given or GivenRates()
        self._devices = devices
        self._list_gpus, self._measure_gpu, self._measure_memory = list_gpus, measure_gpu, measure_memory
        self._gpus: list[Gpu] | None = None
        self._known: dict[str, Ceilings | str] = {}

    def prepare(self) -> None:
        """Measures the first card now, as must be done before a server takes its memory; remembers a failure."""
        self.of("")

    def of(self, device: str, *, again: bool = False) -> Ceilings | str:
        """Of the device that the server named ("cpu", "cuda:0"), else of the first card, else of the CPU.

        One sentence instead where they are not known. `again` measures anew and keeps the better rates.
        """
        if again or device not in self._known:
            found = self._find(device, again)
            given = self._given
            if not isinstance(found, str):
                found = found.with_given(read=given.read, copy=given.copy, product=given.product).times(self._devices)
            self._known[device] = found
        return self._known[device]

    def _find(self, device: str, again: bool) -> Ceilings | str:
        if self._given.enough:
            return Ceilings("the given rates")
        if not self._local:
            if self._given.read is not None:
                return Ceilings("the given rates")
            return "No ceilings: the server is on another machine, whose rates were not given."
        if self._gpus is None:
            self._gpus = self._list_gpus()
        if device == "cpu" or not self._gpus:
            return host_ceilings(self._measure_memory())
        index = re.fullmatch(r"cuda:(\d+)", device)
        number = int(index[1]) if index else 0
        try:
            return self._measure_gpu(self._gpus[min(number, len(self._gpus) - 1)], again)
        except ConfigError as error:
            return Ceilings("the given rates") if self._given.read is not None else f"No ceilings: {error}"


class RooflineJudge:
    """A check of each finished scenario that also writes its shares into the scenario and the run."""

    def __init__(
        self,
        ceilings: FindCeilings,
        model_config: Path | None = None,
        *,
        kv_element_bytes: float = 2.0,
        tokens_per_step: float = 1.0,
    ) -> None:
        """`ceilings` are those of the device that it is called with (`MachineCeilings.of`).

        `tokens_per_step` is what a server that speculates gains a step on average. Raises ConfigError or ModelError
        where `model_config` cannot be used.
        """
        self._ceilings = ceilings
        self._from_config = None if model_config is None else read_model_costs(model_config, kv_element_bytes)
        self._kv_element_bytes = kv_element_bytes
        self._tokens_per_step = tokens_per_step
        self._costs: ModelCosts | str | None = None

    def prepare(self, run: RunResult) -> None:
        """Writes the bounds into the run before anything is measured, so that a killed run has them too."""
        roofline = self._roofline(run)
        if not isinstance(roofline, str):
            _write(run, roofline)

    def __call__(self, scenario: ScenarioResult, run: RunResult) -> list[Check]:
        """Shares and verdict, or why there are none."""
        roofline = self._roofline(run)
        if isinstance(roofline, str):
            return [Check(name="roofline", level="ok", text=roofline)]
        scenario.shares, checks = judge_scenario(scenario, roofline)
        if any(check.level == "fail" for check in checks):
            # Something else may have slowed the machine down when its ceilings were measured: they get one more try.
            better = self._ceilings(run.server.details.get("device", ""), again=True)
            if not isinstance(better, str):
                roofline = replace(roofline, ceilings=better)
                scenario.shares, checks = judge_scenario(scenario, roofline)
        _write(run, roofline)
        run.roofline[scenario.name] = {share.figure: share.share for share in scenario.shares}
        return checks

    def _roofline(self, run: RunResult) -> Roofline | str:
        """The bounds of the run's model on its machine, or one sentence that says why they are not known."""
        card = run.server.details
        if self._costs is None:
            name = card.get("root") or run.model
            self._costs = find_model_costs(name, card, self._from_config, self._kv_element_bytes)
        if isinstance(self._costs, str):
            return self._costs
        ceilings = self._ceilings(card.get("device", ""))
        if isinstance(ceilings, str):
            return ceilings
        if ceilings.read is None:
            return f"No ceilings: how fast {ceilings.device} reads is unknown."
        return Roofline(self._costs, ceilings, self._tokens_per_step)


def _write(run: RunResult, roofline: Roofline) -> None:
    run.ceilings = roofline.ceilings.as_figures()
    run.bounds = msgspec.to_builtins(roofline)
