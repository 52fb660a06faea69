"""Verdicts that repeat."""

from __future__ import annotations

from firsttoken.bench.folded_checks import fold
from firsttoken.bench.records import Check


def flag(name: str, text: str) -> Check:
    return Check(name=name, level="flag", text=text)


def test_a_verdict_that_more_than_two_scenarios_share_is_said_once() -> None:
    named = [(f"sweep@{n}", flag("client", f"held up {n} ms")) for n in (1, 2, 4)]
    (one,) = fold(named)
    assert (one.where.en, one.where.zh) == ("sweep@1, and 2 more like it", "sweep@1 等 3 个场景")
    assert one.check.text == "held up 1 ms"


def test_few_verdicts_and_those_of_the_run_are_said_in_full() -> None:
    named = [("", flag("client", "a")), ("x", flag("cache", "b")), ("y", flag("cache", "c"))]
    named += [("x", Check(name="cache", level="fail", text="d"))]
    assert [(one.where.en, one.check.text) for one in fold(named)] == [("", "a"), ("x", "b"), ("y", "c"), ("x", "d")]
