"""What counts as a disturbance of a run, and what does not."""

from __future__ import annotations

import pytest
from tests.bench.sides import run, scenario

from firsttoken.bench.records import Check, RunResult, Sample
from firsttoken.tune.disturbance import alike, client_was_the_limit, disturbances


def sampled(
    server: float = 0.9, others: float = 0.0, client: float = 0.1, cores: int = 2, states: tuple[str, ...] = ()
) -> RunResult:
    """A run from 100 to 110 s, a reading a second; loads in cores' worth, of others only while it measures."""
    result = run(scenario())
    for at in range(95, 116):
        busy = server + client + (others if 100 < at <= 110 else 0.0)
        loads = {"process:server/a:1": server - 0.1, "process:server/b:2": 0.1, "process:client/c:3": client}
        host = {"busy_cores": busy, "cores": float(cores), "cpu_percent": 100 * busy / cores}
        result.samples.append(Sample(at=at, source="host", values=host))
        result.samples += [Sample(at=at, source=name, values={"cpu_percent": 100 * x}) for name, x in loads.items()]
        result.samples.append(Sample(at=at, source="gpu0", values={"sm_clock_mhz": 1500}, states=list(states)))
    return result


@pytest.mark.parametrize(
    ("others", "cores", "said"),
    [
        (0.5, 2, "other programs used 0.5 of 2 cores"),
        (1.0, 64, "other programs used 1.0 of 64 cores"),
        (0.1, 2, None),
        (0.9, 64, None),
    ],
)
def test_other_programs_disturb_from_a_tenth_of_the_cores_or_from_one_core(
    others: float, cores: int, said: str | None
) -> None:
    found = disturbances(sampled(others=others, cores=cores))
    assert [one.text for one in found] == ([said] if said else [])
    assert all(one.kind == "cpu" and str(cores) in one.text_zh for one in found)


@pytest.mark.parametrize(("server", "client"), [(0.2, 0.1), (1.0, 0.3), (1.6, 0.4), (1.9, 0.1)])
def test_a_setting_that_makes_the_server_use_more_cpu_does_not_disturb(server: float, client: float) -> None:
    assert disturbances(sampled(server=server, client=client)) == []
    assert len(disturbances(sampled(server=server, client=client, others=0.3))) == 1


def test_where_the_servers_processes_are_not_seen_nobody_is_blamed() -> None:
    result = sampled(server=1.5)
    result.samples = [sample for sample in result.samples if not sample.source.startswith("process:server")]
    assert disturbances(result) == []


def test_a_run_of_which_too_little_was_sampled_is_not_judged() -> None:
    result = sampled(others=1.0)
    result.samples = [sample for sample in result.samples if sample.at < 104]
    assert disturbances(result) == []


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (("software power cap",), None),
        (("hardware thermal slowdown",), "the card slowed itself down: hardware thermal slowdown 100%"),
        (("software power cap", "power brake"), "the card slowed itself down: power brake 100%"),
    ],
)
def test_a_card_that_protects_itself_disturbs_and_one_at_its_power_limit_does_not(
    reasons: tuple[str, ...], said: str | None
) -> None:
    assert [one.text for one in disturbances(sampled(states=reasons))] == ([said] if said else [])


def shared_card(ours: float, theirs: float, card: str = "gpu0") -> RunResult:
    """A server and another program, numbers 41 and 7 on their cards; the other one works half of the time."""
    result = sampled()
    for at in range(95, 116):
        result.samples.append(Sample(at=at, source="user:gpu0:41", values={"sm_percent": ours}))
        if at % 2:
            result.samples.append(Sample(at=at, source=f"user:{card}:7", values={"sm_percent": 2 * theirs}))
    return result


@pytest.mark.parametrize(
    ("ours", "theirs", "card", "disturbed"),
    [(90.0, 11.0, "gpu0", True), (90.0, 4.0, "gpu0", False), (90.0, 50.0, "gpu1", False), (0.0, 50.0, "gpu0", False)],
)
def test_another_program_disturbs_by_its_work_on_the_servers_card(
    ours: float, theirs: float, card: str, disturbed: bool
) -> None:
    found = disturbances(shared_card(ours, theirs, card), {f"{card}:7", "gpu0:8"})
    assert [one.kind for one in found] == ["gpu"] * disturbed
    assert disturbances(shared_card(ours, theirs, card)) == []  # then it may be the server's own


def test_the_figures_play_no_part() -> None:
    slow = sampled()
    slow.scenarios = [scenario(tpot=10.0, rate=0.1)]
    slow.scenarios[0].checks = [Check(name="client", level="fail", text="The client was the limit.")]
    assert disturbances(slow) == []
    assert client_was_the_limit(slow)
    assert not client_was_the_limit(sampled(others=2.0))


def test_runs_are_alike_where_the_same_kinds_of_things_acted_on_them() -> None:
    quiet, cpu = disturbances(sampled()), disturbances(sampled(others=1.0))
    hot = disturbances(sampled(states=("power brake",)))
    assert alike(quiet, quiet)
    assert alike(cpu, disturbances(sampled(others=0.4)))
    assert not alike(quiet, cpu)
    assert not alike(cpu, hot)
