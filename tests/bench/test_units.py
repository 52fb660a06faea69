"""Numbers as people read them."""

from __future__ import annotations

import pytest

from firsttoken.bench import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0123, "12.3 ms"),
        (0.00183, "1.83 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (61.04, "61.0 s"),
        (900.0, "15.0 min"),
    ],
)
def test_times_change_their_unit_where_people_do(value: float | None, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,300"), (999.6, "1,000"), (0.0, "0"), (0.01234, "0.0123"), (float("inf"), "–")]
)
def test_three_digits_are_kept_and_no_more(value: float, text: str) -> None:
    assert units.digits(value) == text


def test_a_small_share_keeps_a_digit_and_zero_has_none() -> None:
    assert [units.percent(share) for share in (0.0, 0.034, 0.512, None)] == ["0 %", "3.4 %", "51 %", "–"]


def test_bytes_are_in_binary_units() -> None:
    assert [units.size(value) for value in (512, 2**20, 7.49 * 2**30, None)] == ["512 B", "1.00 MiB", "7.49 GiB", "–"]
