from __future__ import annotations

import pytest

from firsttoken.doctor.fit.judge import judge


@pytest.mark.parametrize(
    ("predicted", "goal", "verdict", "says"),
    [
        (0.012, 0.020, "met", "leave everything alone"),
        (0.012, 0.011, "tune", "between the floor of 10.0 ms and the 12.0 ms expected"),
        (0.012, 0.009, "physics", "below the floor of 10.0 ms, so no flag helps"),
        (0.011, None, "physics", "10% above the floor, so no flag helps"),
        (0.015, None, "tune", "1.5 times the floor"),
        (None, 0.02, "unknown", "bench run"),
    ],
)
def test_a_goal_is_met_or_worth_tuning_or_beyond_physics(
    predicted: float | None, goal: float | None, verdict: str, says: str
) -> None:
    found = judge("TPOT", 0.010, predicted, goal)
    assert found.verdict == verdict
    assert says in found.text
