"""What samples say of a scenario: means inside it, energy by counter or by power, clocks held back."""

from __future__ import annotations

import pytest

from firsttoken.bench.energy import check_clocks, clocks_judge, scenario_usage, usage
from firsttoken.bench.records import Check, LoadSpec, Phase, RequestRecord, RunResult, Sample, ScenarioResult


def gpu(at: float, source: str = "gpu0", states: tuple[str, ...] = (), **values: float) -> Sample:
    return Sample(at=at, source=source, values=values, states=list(states))


def test_means_and_maxima_are_those_inside_the_scenario() -> None:
    samples = [
        gpu(0, gpu_percent=0, memory_used_bytes=9e9, sm_clock_mhz=300),
        gpu(1, gpu_percent=80, memory_used_bytes=5e9, sm_clock_mhz=1900),
        gpu(2, gpu_percent=100, memory_used_bytes=6e9, sm_clock_mhz=1980),
        gpu(3, gpu_percent=0, memory_used_bytes=9e9, sm_clock_mhz=300),
    ]
    found = usage(samples, 0.5, 2.5)
    assert (found.gpu_percent, found.vram_bytes, found.sm_clock_mhz) == (90, 6e9, 1940)
    assert found.power_w is None


def test_energy_comes_from_the_counter_read_between_its_samples() -> None:
    samples = [gpu(at, energy_j=1000 + 400 * at, power_w=1.0) for at in range(5)]
    found = usage(samples, 0.5, 3.0, output_tokens=500)
    assert found.energy_j == pytest.approx(1000)
    assert found.energy_from == "counter"
    assert found.energy_j_per_token == pytest.approx(2.0)


def test_without_a_counter_power_is_integrated() -> None:
    samples = [gpu(0, power_w=100), gpu(1, power_w=300), gpu(2, power_w=300), gpu(4, power_w=100)]
    found = usage(samples, 0.5, 3.0, output_tokens=10)
    assert found.energy_j == pytest.approx(0.5 * 250 + 300 + 250)
    assert found.energy_from == "power"


def test_a_scenario_that_no_samples_enclose_has_no_energy() -> None:
    samples = [gpu(1, energy_j=1.0, power_w=100), gpu(2, energy_j=5.0, power_w=100)]
    found = usage(samples, 0.5, 1.5, output_tokens=10)
    assert (found.energy_j, found.energy_from, found.energy_j_per_token) == (None, None, None)


def test_several_cards_add_their_power_and_share_their_load() -> None:
    samples = [
        gpu(at, source, gpu_percent=load, power_w=power, memory_used_bytes=1e9)
        for at in range(3)
        for source, load, power in (("gpu0", 100.0, 400.0), ("gpu1", 50.0, 200.0))
    ]
    found = usage(samples, 0.0, 2.0)
    assert (found.gpu_percent, found.power_w, found.energy_j, found.vram_bytes) == (75, 600, 1200, 2e9)


def test_cpu_is_told_in_cores_for_all_processes_of_a_side() -> None:
    samples = [
        Sample(at=at, source=source, values={"cpu_percent": load, "rss_bytes": 1e8 + at})
        for at in (1.0, 2.0)
        for source, load in (("process:server/a:1", 100.0), ("process:server/b:2", 50.0), ("process:client/c:3", 20.0))
    ]
    samples.append(Sample(at=2.0, source="process:server/late:4", values={"cpu_percent": 100.0, "rss_bytes": 0.0}))
    samples.append(Sample(at=1.0, source="host", values={"cpu_percent": 40.0}))
    found = usage(samples, 0.0, 3.0)
    assert (found.server_cores, found.client_cores, found.host_cpu_percent) == (2.0, 0.2, 40.0)
    assert found.server_rss_bytes == 2e8 + 4


def test_what_others_used_is_the_rest_of_the_busy_cores_in_the_part_of_a_stretch_that_was_seen() -> None:
    def at(moment: float, busy: float, server: float) -> list[Sample]:
        loads = {"process:server/a:1": 100 * server, "process:client/c:3": 10.0}
        host = Sample(at=moment, source="host", values={"busy_cores": busy, "cores": 4.0})
        return [host, *(Sample(at=moment, source=name, values={"cpu_percent": x}) for name, x in loads.items())]

    # A second with nothing of others, one with a core of them, and then three of which a half is in the stretch.
    samples = [*at(0.0, 4.0, 0.0), *at(1.0, 2.0, 1.9), *at(2.0, 2.1, 1.0), *at(5.0, 3.1, 1.0)]
    assert usage(samples, 0.0, 2.0).other_cores == pytest.approx(0.5)
    assert usage(samples, 0.0, 3.5).other_cores == pytest.approx((1.0 + 1.5 * 2.0) / 3.5)
    assert usage(samples, 0.0, 2.0).cores == 4.0
    assert usage(samples, 4.0, 7.0).other_cores is None  # a third of it
    assert usage(samples, 1.0, 1.4).other_cores is None  # too short for the kernel's ticks


def test_a_scenarios_use_is_that_of_its_measured_requests() -> None:
    samples = [gpu(at, gpu_percent=100.0 if 2 <= at <= 4 else 0.0, energy_j=100.0 * at) for at in range(8)]
    scenario = ScenarioResult(name="x", scenario="x", load=LoadSpec(concurrency=1), started=0.5, ended=6.5)
    assert scenario_usage(scenario, samples).gpu_percent == pytest.approx(50)  # nothing but its own times is known
    sent: list[tuple[Phase, float, float]] = [("warm-up", 0.5, 1.5), ("measured", 2.0, 3.0), ("measured", 2.5, 4.0)]
    scenario.records = [
        RequestRecord(id="0", scenario="x", phase=phase, stream=0, sent=start, ended=end) for phase, start, end in sent
    ]
    found = scenario_usage(scenario, samples)
    assert (found.gpu_percent, found.energy_j) == (100.0, 200.0)


def test_clocks_that_were_held_back_flag_the_figures() -> None:
    samples = [gpu(at, sm_clock_mhz=1500, states=("power brake",) if at < 2 else ()) for at in range(10)]
    (check,) = check_clocks(usage(samples, 0, 9))
    assert (check.name, check.level) == ("clocks", "flag")
    assert "power brake 20%" in check.text


def test_a_card_at_its_power_limit_is_flagged_only_where_it_slowed_down() -> None:
    def check(slow_mhz: float) -> Check:
        cap = ("software power cap",)
        samples = [gpu(at, sm_clock_mhz=slow_mhz if at < 5 else 1980, states=cap if at < 5 else ()) for at in range(10)]
        return check_clocks(usage(samples, 0, 9))[0]

    assert (check(1965).level, check(1500).level) == ("ok", "flag")
    assert check(1965).text.startswith("At the power limit (software power cap 50% of the samples)")


def test_free_clocks_are_ok_and_unread_ones_are_no_verdict() -> None:
    assert [check.level for check in check_clocks(usage([gpu(1, sm_clock_mhz=1980)], 0, 2))] == ["ok"]
    assert check_clocks(usage([], 0, 2)) == []


def test_a_judge_looks_at_its_scenarios_time_alone() -> None:
    samples = [gpu(at, sm_clock_mhz=1980, states=("power brake",) if at < 5 else ()) for at in range(10)]
    judge = clocks_judge(lambda: samples)

    def level(started: float, ended: float) -> str:
        scenario = ScenarioResult(
            name="x", scenario="x", load=LoadSpec(concurrency=1), started=started, ended=ended, complete=True
        )
        return judge(scenario, RunResult())[0].level

    assert (level(0, 4), level(5, 9)) == ("flag", "ok")
