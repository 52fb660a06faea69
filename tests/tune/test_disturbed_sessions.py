"""Sessions on a machine that other programs disturb: what is measured again, what counts, and when it ends."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from tests.tune.simulated import CANDIDATES, claimed, no_effect, session
from tests.tune.test_sessions import SLOW_MACHINE, bad_baseline, seconds

from firsttoken.tune.arms import Arm
from firsttoken.tune.lab import Event, Said, Tried
from firsttoken.tune.repeats import IN_A_ROW, SHARE

BLOCK = Arm("block", 32)


def bursts(seed: int) -> Callable[[int], float]:
    """Another program comes every tenth measurement and stays for one to three, each of which it slows by half."""
    draw = random.Random(seed)
    taken = {first + more for first in range(2, 400, 10) for more in range(draw.randrange(1, 4))}
    return lambda number: 1.0 if number in taken else 0.0


def test_disturbed_runs_of_settings_without_effect_make_no_verdict_and_no_noise() -> None:
    outcomes = [session(CANDIDATES, no_effect, 7000 + seed, others=bursts(seed)) for seed in range(30)]
    assert sum(bool(claimed(outcome)) for outcome in outcomes) <= 4
    assert max(outcome.noise for outcome in outcomes) < 0.03  # of runs that count whatever: 0.15 and more


def test_a_setting_that_helps_is_found_between_the_bursts() -> None:
    found = [session(CANDIDATES, lambda s: 0.05 * (s.get("block") == 32), seed, others=bursts(seed)) for seed in (1, 2)]
    assert [outcome.kept for outcome in found] == [{BLOCK}] * 2
    assert all(outcome.fresh and outcome.fresh.gain == pytest.approx(0.05, abs=0.015) for outcome in found)


def test_large_gains_are_found_in_a_quarter_of_an_hour_though_half_of_the_runs_are_disturbed() -> None:
    kept = 0
    for seed in range(6000, 6006):
        draw, events = random.Random(seed), list[Event]()
        taken = [draw.choice([0.0, 1.0]) for _ in range(200)]
        outcome = session(
            SLOW_MACHINE,
            bad_baseline,
            seed,
            hours=0.245,
            seconds=seconds,
            noisier=4.0,
            tell=events.append,
            others=taken.__getitem__,
        )
        kept += {arm.knob for arm in outcome.kept} == {"budget", "cache", "threads"}
        assert [event for event in events if isinstance(event, Tried)][-1].spent <= 1.05 * 0.245 * 3600
    assert kept >= 4


def test_a_session_that_is_disturbed_all_the_time_ends_in_its_budget_and_soon_repeats_nothing() -> None:
    events: list[Event] = []
    outcome = session(CANDIDATES, no_effect, 8000, hours=1.0, others=lambda number: 1.0, tell=events.append)
    assert claimed(outcome) == []
    tried = [event for event in events if isinstance(event, Tried)]
    assert tried[-1].spent <= 1.02 * 3600
    said = [event.text for event in events if isinstance(event, Said) and "was disturbed" in event.text]
    assert len(said) == len(tried)  # one line each
    assert sum("measured again" in text for text in said) == 2
    assert "Run 3 was disturbed (other programs used 1.0 of 2 cores): it stays, since it was measured 3 times." in said
    assert all("does not become quiet" in text for text in said[IN_A_ROW - 1 :])


def test_repeats_take_no_more_than_their_share_however_often_others_come() -> None:
    events: list[Event] = []
    session(CANDIDATES, no_effect, 8001, hours=1.0, others=lambda number: float(number % 2), tell=events.append)
    again = sum("measured again" in event.text for event in events if isinstance(event, Said))
    assert 60 * again <= SHARE * 3600
    assert [event for event in events if isinstance(event, Tried)][-1].spent <= 1.02 * 3600


def test_without_repeats_the_same_bursts_would_be_noise() -> None:
    """What the first test rests on: the planted bursts do show in figures."""
    slowed = [0.4 * bursts(0)(number) for number in range(200)]
    gains = [first - second for first, second in zip(slowed[::2], slowed[1::2], strict=True)]
    assert math.sqrt(sum(gain * gain for gain in gains) / len(gains)) > 0.1
