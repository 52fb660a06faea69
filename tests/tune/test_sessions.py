"""How often whole sessions are right, on simulated servers: noise of a run 0.7 %, of a launch 1 %, a drift of 3 %."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest
from tests.tune.simulated import CANDIDATES, GOOD, Effect, claimed, no_effect, session

from firsttoken.errors import Unavailable
from firsttoken.tune.arms import Arm, Candidate, Settings
from firsttoken.tune.lab import Event, Said, Stage, Tried
from firsttoken.tune.quality import Quality
from firsttoken.tune.session import Outcome

BLOCK, THREADS, KV = Arm("block", 32), Arm("threads", 4), Arm("kv", 8)


def test_at_most_nine_of_a_hundred_sessions_over_knobs_without_effect_claim_anything() -> None:
    assert sum(bool(claimed(session(CANDIDATES, no_effect, seed))) for seed in range(100)) <= 9


@pytest.fixture(scope="module")
def three_percent() -> list[Outcome]:
    return [session(CANDIDATES, lambda s: 0.03 * (s.get("block") == 32), 1000 + seed) for seed in range(100)]


def test_a_planted_three_percent_is_found_in_eighty_of_a_hundred_sessions(three_percent: list[Outcome]) -> None:
    assert sum(outcome.kept == {BLOCK} for outcome in three_percent) >= 80
    assert sum(bool(outcome.kept - {BLOCK}) for outcome in three_percent) <= 9


def test_the_reported_gain_is_unbiased_though_the_confirmed_one_was_selected(three_percent: list[Outcome]) -> None:
    fresh = [outcome.fresh.gain for outcome in three_percent if outcome.kept == {BLOCK} and outcome.fresh is not None]
    error = statistics.stdev(fresh) / len(fresh) ** 0.5
    assert abs(statistics.fmean(fresh) - 0.03) < 2.5 * error < 0.0025
    covered = [one.fresh for one in three_percent if one.kept == {BLOCK} and one.fresh is not None]
    assert sum(one.low <= 0.03 <= one.high for one in covered) / len(covered) > 0.88


def test_two_knobs_that_help_only_together_are_found() -> None:
    def effect(settings: Settings) -> float:
        return 0.06 * (settings.get("block") == 32 and settings.get("threads") == 4)

    found = [session(CANDIDATES, effect, 2000 + seed) for seed in range(10)]
    assert sum(outcome.kept == {BLOCK, THREADS} for outcome in found) >= 8
    claim = next(outcome for outcome in found if outcome.kept).claims[BLOCK]
    assert claim.found.gain == pytest.approx(0.06, abs=0.03)  # without it, all of the gain is gone


def test_of_two_knobs_of_which_either_is_enough_one_is_kept() -> None:
    def effect(settings: Settings) -> float:
        return 0.06 * (settings.get("block") == 32 or settings.get("threads") == 4)

    found = [session(CANDIDATES, effect, 3000 + seed, hours=6) for seed in range(5)]
    assert sum(len(outcome.kept) == 1 and outcome.kept <= {BLOCK, THREADS} for outcome in found) >= 4


def test_the_best_of_a_knobs_values_is_kept() -> None:
    gains = {None: 0.0, 1024: 0.03, 4096: 0.08}
    found = [session(CANDIDATES, lambda s: gains[s.get("budget")], 4000 + seed) for seed in range(5)]  # type: ignore[index]
    assert [outcome.kept for outcome in found] == [{Arm("budget", 4096)}] * 5


def test_a_knob_that_is_fast_but_breaks_quality_is_rejected() -> None:
    def judge(baseline: Settings, settings: Settings) -> Quality:
        return GOOD if settings.get("kv") != 8 else Quality(passed=False, text="top-1 agreement 71 %")

    outcome = session(CANDIDATES, lambda s: 0.2 * (s.get("kv") == 8), 7, judge=judge)
    assert outcome.kept == frozenset()
    assert outcome.quality[frozenset({KV})].text == "top-1 agreement 71 %"
    assert session(CANDIDATES, lambda s: 0.2 * (s.get("kv") == 8), 7).kept == {KV}


def test_quality_is_shown_of_numerics_together_where_each_is_good_alone() -> None:
    arms = [Candidate(KV, numerics=True), Candidate(Arm("weights", 4), numerics=True)]
    asked: list[Settings] = []

    def judge(baseline: Settings, settings: Settings) -> Quality:
        asked.append(settings)
        return Quality(passed=len(settings) < 2, text="")

    outcome = session(arms, lambda s: 0.1 * len(s), 5, judge=judge)
    assert {"kv": 8, "weights": 4} in asked
    assert len(outcome.kept) == 1


def test_a_knob_that_costs_ten_percent_is_said_to_hurt() -> None:
    found = [session(CANDIDATES, lambda s: -0.1 * (s.get("graphs") == 8), 5000 + seed) for seed in range(5)]
    assert all(outcome.claims[Arm("graphs", 8)].verdict == "hurts" for outcome in found)
    assert all(outcome.kept == frozenset() for outcome in found)


def test_a_value_that_never_starts_is_a_constraint_and_the_session_goes_on() -> None:
    def fails(settings: Settings) -> str:
        return "out of memory" if settings.get("graphs") == 64 else ""

    outcome = session(CANDIDATES, lambda s: 0.05 * (s.get("block") == 32), 11, fails=fails)
    assert outcome.failed == {Arm("graphs", 64): "out of memory"}
    assert outcome.kept == {BLOCK}


def test_a_winner_that_fails_when_it_is_launched_again_is_not_kept() -> None:
    launches = 0

    def fails(settings: Settings) -> str:
        nonlocal launches
        launches += 1
        return "it died" if "block" in settings and launches > 22 else ""  # 22: noise and screening

    outcome = session([Candidate(BLOCK)], lambda s: 0.1 * ("block" in s), 13, fails=fails)
    assert outcome.kept == frozenset()
    assert outcome.why.en == "What looked better failed when it was launched again."


def test_two_values_that_fail_only_together_are_not_tried_together_again() -> None:
    tried: list[Settings] = []

    def fails(settings: Settings) -> str:
        broken = settings.get("budget") == 4096 and settings.get("kv") == 8
        if broken:
            tried.append(dict(settings))
        return "out of memory" if broken else ""

    outcome = session(CANDIDATES, lambda s: 0.05 * (s.get("block") == 32), 12, fails=fails)
    assert outcome.failed == {}
    assert outcome.kept == {BLOCK}
    knobs = [frozenset(settings.items()) for settings in tried]
    assert not any(first < second for place, first in enumerate(knobs) for second in knobs[place + 1 :])


def test_a_baseline_that_fails_stops_at_once_with_the_reason() -> None:
    asked: list[Settings] = []

    def fails(settings: Settings) -> str:
        asked.append(settings)
        return "the port is taken"

    with pytest.raises(Unavailable, match=r"baseline does not run.*the port is taken"):
        session(CANDIDATES, no_effect, 1, fails=fails)
    assert len(asked) <= 2


def test_a_session_without_time_claims_nothing() -> None:
    outcome = session(CANDIDATES, lambda s: 0.2 * len(s), 3, hours=0.3)
    assert outcome.kept == frozenset()
    assert "time" in outcome.why.en
    assert outcome.left_out


SLOW_MACHINE = [
    Candidate(Arm("budget", 512)),
    Candidate(Arm("budget", 4096)),
    Candidate(Arm("block", 32), predicted=0.0),
    Candidate(Arm("cache", 1), predicted=0.94),
    Candidate(Arm("weights", 8), numerics=True),
    Candidate(Arm("weights", 4), numerics=True),
    Candidate(Arm("kv", 8), numerics=True),
    Candidate(Arm("threads", 2)),
]


def bad_baseline(settings: Settings) -> float:
    """A baseline whose three knobs are all wrong, as measured on the demo model: each costs half or more."""
    return (
        0.53 * ("budget" in settings)
        + 0.84 * ("cache" in settings)
        + 0.39 * ("threads" in settings)
        - 0.06 * (settings.get("weights") == 8)
        - 0.7 * ("kv" in settings)
    )


def seconds(settings: Settings) -> float:
    """A launch, and a load that the settings speed up or slow down."""
    return 5 + 13.5 * math.exp(-bad_baseline(settings)) * (1.5 if "kv" in settings else 1.0)


def quarter_hour(
    seed: int,
    effect: Effect = bad_baseline,
    *,
    slower: float = 1.0,
    tell: Callable[[Event], None] = lambda event: None,
) -> Outcome:
    return session(
        SLOW_MACHINE, effect, seed, hours=0.245, seconds=lambda s: slower * seconds(s), noisier=4.0, tell=tell
    )


def test_a_bad_baseline_is_found_bad_in_a_quarter_of_an_hour_though_runs_are_slow_and_noisy() -> None:
    good = {"budget", "cache", "threads"}
    for seed in range(6000, 6020):
        events: list[Event] = []
        outcome = quarter_hour(seed, tell=events.append)
        assert {arm.knob for arm in outcome.kept} == good
        assert outcome.fresh is not None
        assert outcome.fresh.gain == pytest.approx(1.76, abs=0.3)
        assert max(event.spent for event in events if isinstance(event, Tried)) < 1.05 * 0.245 * 3600


def test_without_the_time_to_show_each_setting_what_screening_is_sure_of_is_confirmed_as_a_whole() -> None:
    outcome = quarter_hour(6000, slower=1.7)
    assert {arm.knob for arm in outcome.kept} == {"budget", "cache", "threads"}
    assert {arm.knob for arm in outcome.confirmed} == {"budget", "threads"}  # the least sure two
    assert outcome.why.en.startswith("The settings are confirmed together")


def test_a_setting_that_adds_nothing_does_not_cost_the_others_though_the_time_is_short() -> None:
    def effect(settings: Settings) -> float:
        either = "budget" in settings or "threads" in settings  # so neither adds to the other
        return 0.7 * either + 0.84 * ("cache" in settings)

    outcome = quarter_hour(6200, effect)
    assert len(outcome.rounds[0].config) == 3
    assert {arm.knob for arm in outcome.kept} in ({"budget", "cache"}, {"threads", "cache"})


def test_in_much_noise_what_helps_as_a_whole_is_kept_though_not_each_setting_could_be_shown() -> None:
    outcome = session(SLOW_MACHINE, bad_baseline, 6001, hours=0.245, seconds=seconds, noisier=12.0)
    assert {arm.knob for arm in outcome.kept} == {"budget", "cache", "threads"}
    assert {claim.verdict for claim in outcome.confirmed.values()} == {"helps", "undecided"}
    assert outcome.why.en.startswith("The settings are confirmed together")


def test_what_a_last_round_says_of_the_config_without_its_weakest_setting_is_used() -> None:
    outcome = session(SLOW_MACHINE, bad_baseline, 6003, hours=0.245, seconds=seconds, noisier=6.0)
    assert len(outcome.rounds) == 1
    assert len(outcome.rounds[0].config) == 4
    assert {arm.knob for arm in outcome.kept} == {"budget", "cache", "threads"}
    assert outcome.why.en == ""


def test_a_value_that_plainly_costs_and_is_slow_is_soon_left_and_said_to_hurt() -> None:
    events: list[Event] = []
    outcome = session(SLOW_MACHINE, bad_baseline, 7, hours=1.0, seconds=seconds, noisier=4.0, tell=events.append)
    assert outcome.dropped[KV] <= 8  # of 15 pairs that were planned
    assert outcome.claims[KV].verdict == "hurts"
    assert Said("kv = 8 plainly costs, and its runs take long: no more of it") in events
    assert {arm.knob for arm in outcome.kept} == {"budget", "cache", "threads"}


def test_short_noisy_sessions_over_knobs_without_effect_claim_as_little() -> None:
    assert sum(bool(claimed(quarter_hour(6100 + seed, no_effect))) for seed in range(100)) <= 9


def minutes(count: float, effect: Effect, seed: int = 9, tell: Callable[[Event], None] = lambda event: None) -> Outcome:
    """Three values of three knobs, where a run takes fourteen seconds."""
    arms = [Candidate(Arm(knob, 1)) for knob in ("graphs", "table", "eager")]
    return session(arms, effect, seed, hours=count / 60, seconds=lambda settings: 14.0, tell=tell)


def test_time_that_a_confirmation_does_not_need_goes_to_what_was_left_out() -> None:
    events: list[Event] = []
    outcome = minutes(6, lambda settings: -0.4 * ("table" in settings), tell=events.append)
    assert not outcome.left_out
    assert outcome.claims[Arm("table", 1)].verdict == "hurts"
    stages = [event.text for event in events if isinstance(event, Stage) and event.name == "screening"]
    assert stages == ["2 values of 2 knobs in 5 pairs", "1 value of 1 knob in 4 pairs"]
    assert max(event.spent for event in events if isinstance(event, Tried)) <= 1.05 * 360


def test_what_looks_better_without_the_time_to_confirm_it_is_not_followed_by_others() -> None:
    outcome = minutes(4, lambda settings: 0.3 * len(settings))
    assert outcome.unconfirmed
    assert outcome.left_out
    assert outcome.kept == frozenset()


def test_sessions_that_take_up_what_they_had_left_out_claim_as_little_where_nothing_has_an_effect() -> None:
    assert sum(bool(claimed(minutes(6, no_effect, 8000 + seed))) for seed in range(100)) <= 9
