"""Where ceilings and costs come from, and that what is unknown is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.qwen3_4b import CONFIG

from firsttoken.bench.records import Chunk, LoadSpec, RequestRecord, RunResult, ScenarioResult, ServerIdentity
from firsttoken.bench.roofline_judge import GivenRates, MachineCeilings, RooflineJudge
from firsttoken.errors import ConfigError
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings

LOCAL, REMOTE = "http://127.0.0.1:8000", "http://192.0.2.1:8000"
H200 = Ceilings("NVIDIA H200", 4.41e12, 4.1e12, 7.91e14)


class Machine:
    """Counts what is measured of a made-up machine."""

    def __init__(self, gpus: int = 1, broken: bool = False) -> None:
        self.gpus = [Gpu(i, "NVIDIA H200", 1, 1, "580") for i in range(gpus)]
        self.broken = broken
        self.measured: list[str] = []

    def gpu(self, gpu: Gpu, again: bool) -> Ceilings:
        self.measured.append(f"gpu{gpu.index}" + (" again" if again else ""))
        if self.broken:
            raise ConfigError("The ceilings of NVIDIA H200 could not be measured (no torch); give them by hand.")
        return H200

    def memory(self) -> MemoryCeiling:
        self.measured.append("memory")
        return MemoryCeiling(2e10, 2, "2026-11-30")

    def ceilings(self, url: str = LOCAL, given: GivenRates | None = None, devices: int = 1) -> MachineCeilings:
        return MachineCeilings(
            url, given, devices, list_gpus=lambda: self.gpus, measure_gpu=self.gpu, measure_memory=self.memory
        )


def known(found: Ceilings | str) -> Ceilings:
    assert not isinstance(found, str), found
    return found


def test_the_first_card_is_measured_once_before_a_server_is_launched() -> None:
    machine = Machine(gpus=2)
    ceilings = machine.ceilings()
    ceilings.prepare()
    assert known(ceilings.of("")).read == 4.41e12
    assert machine.measured == ["gpu0"]
    known(ceilings.of("cuda:1"))
    assert machine.measured == ["gpu0", "gpu1"]


def test_a_server_on_the_cpu_or_without_a_card_is_held_to_memory() -> None:
    assert known(Machine(gpus=1).ceilings().of("cpu")).read == 2e10
    assert known(Machine(gpus=0).ceilings().of("")).device == "CPU (2 threads)"


def test_given_rates_go_before_measured_ones_and_enough_of_them_measure_nothing() -> None:
    machine = Machine()
    part = known(machine.ceilings(given=GivenRates(read=4.8e12)).of(""))
    assert (part.read, part.product) == (4.8e12, 7.91e14)
    whole = known(Machine().ceilings(given=GivenRates(read=1e12, product=1e14), devices=2).of(""))
    assert (whole.read, whole.product) == (2e12, 2e14)
    assert machine.measured == ["gpu0"]


def test_of_another_machine_only_given_rates_are_used() -> None:
    machine = Machine()
    assert machine.ceilings(REMOTE).of("") == (
        "No ceilings: the server is on another machine, whose rates were not given."
    )
    assert known(machine.ceilings(REMOTE, GivenRates(read=3e12)).of("cuda:0")).read == 3e12
    assert machine.measured == []


def test_a_card_that_cannot_be_measured_is_said_unless_its_rates_are_given() -> None:
    text = Machine(broken=True).ceilings().of("")
    assert isinstance(text, str)
    assert "could not be measured (no torch)" in text
    assert known(Machine(broken=True).ceilings(given=GivenRates(read=3e12)).of("")).read == 3e12


class Known:
    """Ceilings that are what they are, and which devices they were asked for."""

    def __init__(self, found: Ceilings | str, better: Ceilings | str | None = None) -> None:
        self.found, self.better = found, found if better is None else better
        self.asked: list[str] = []

    def __call__(self, device: str, *, again: bool = False) -> Ceilings | str:
        self.asked.append(device + (" again" if again else ""))
        return self.better if again else self.found


def scenario() -> ScenarioResult:
    chunks = [Chunk(0.016 + 0.00359 * i, "x", 1) for i in range(129)]
    record = RequestRecord(id="0", scenario="s", phase="measured", stream=0, ended=chunks[-1].at, chunks=chunks)
    record.prompt_tokens, record.completion_tokens, record.cached_tokens = 32, 129, 0
    return ScenarioResult(name="s", scenario="s", load=LoadSpec(concurrency=1), records=[record])


def test_shares_are_written_into_scenario_and_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    run, one = RunResult(model="any"), scenario()
    (check,) = RooflineJudge(Known(H200), tmp_path)(one, run)
    assert check.level == "ok"
    assert "TPOT 51 %" in check.text
    assert run.roofline["s"] == {share.figure: share.share for share in one.shares}
    assert run.ceilings["read_bytes_per_s"] == 4.41e12


def test_the_server_tells_its_device_and_its_weights_bytes() -> None:
    ceilings = Known(Ceilings("CPU", read=1e11))
    run = RunResult(server=ServerIdentity(details={"root": "demo", "device": "cpu", "weight_bytes": "85000000"}))
    one = scenario()
    RooflineJudge(ceilings)(one, run)
    assert ceilings.asked == ["cpu"]
    tpot = next(share for share in one.shares if share.figure == "tpot")
    assert tpot.ceiling == pytest.approx(85e6 / 1e11)


def test_ceilings_that_a_figure_passes_are_measured_once_more_before_it_is_called_impossible() -> None:
    low, run = Ceilings("CPU", read=1e9), RunResult(server=ServerIdentity(details={"weight_bytes": "85000000"}))
    rescued = Known(low, Ceilings("CPU", read=1e11))
    assert [check.level for check in RooflineJudge(rescued)(scenario(), run)] == ["ok"]
    assert rescued.asked == ["", " again"]
    assert run.ceilings["read_bytes_per_s"] == 1e11
    for still in (Known(low), Known(low, "No ceilings: the card is gone.")):
        assert "fail" in [check.level for check in RooflineJudge(still)(scenario(), run)]


def test_a_second_measurement_replaces_the_first_one() -> None:
    machine = Machine()
    ceilings = machine.ceilings()
    ceilings.of("")
    ceilings.of("", again=True)
    ceilings.of("")
    assert machine.measured == ["gpu0", "gpu0 again"]


@pytest.mark.parametrize(
    ("found", "details", "text"),
    [
        (H200, {}, "the config of any is not here"),
        ("No ceilings: the card could not be measured.", {"weight_bytes": "1"}, "could not be measured"),
        (Ceilings("NVIDIA X"), {"weight_bytes": "1"}, "how fast NVIDIA X reads is unknown"),
    ],
)
def test_what_is_not_known_is_said_instead_of_guessed(
    found: Ceilings | str, details: dict[str, str], text: str
) -> None:
    one = scenario()
    (check,) = RooflineJudge(Known(found))(one, RunResult(model="any", server=ServerIdentity(details=details)))
    assert check.level == "ok"
    assert text in check.text
    assert one.shares == []


def test_a_config_that_cannot_be_used_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no model config"):
        RooflineJudge(Known(H200), tmp_path / "missing.json")
