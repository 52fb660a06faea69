from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from firsttoken.bench.records import Cache, Check, Chunk, LoadSpec, RequestRecord, ScenarioResult
from firsttoken.bench.self_check import check_scenario


def requests(count: int, change: Callable[[int], dict[str, Any]] = lambda number: {}) -> list[RequestRecord]:
    """Sound requests, one a second, changed as told by their number."""

    def one(number: int) -> RequestRecord:
        sent = float(number)
        plain: dict[str, Any] = {
            "id": f"s/measured/{number}/0",
            "scenario": "s",
            "phase": "measured",
            "stream": 0,
            "sent": sent,
            "ended": sent + 0.5,
            "status": 200,
            "chunks": [Chunk(sent + 0.1 + 0.01 * token, "x", 1) for token in range(4)],
            "max_tokens": 4,
            "ignore_eos": True,
            "prompt_tokens_intended": 100,
            "prompt_tokens": 100,
            "completion_tokens": 4,
            "cached_tokens": 0,
            "token_source": "server",
        }
        return RequestRecord(**{**plain, **change(number)})

    return [one(number) for number in range(count)]


def checks(
    records: Sequence[RequestRecord],
    *,
    load: LoadSpec | None = None,
    cache: Cache = "cold",
    ceiling: float | None = 1000.0,
    late: float = 0.0,
) -> dict[str, Check]:
    load = load or LoadSpec(concurrency=1, requests=len(records), warm_up=1)
    result = ScenarioResult(name="s", scenario="s", load=load, records=list(records))
    return {check.name: check for check in check_scenario(result, cache=cache, client_ceiling=ceiling, late=late)}


def test_a_sound_scenario_passes_every_check() -> None:
    found = checks(requests(10))
    assert {check.level for check in found.values()} == {"ok"}
    assert set(found) == {"errors", "client", "prompt-tokens", "output-tokens", "cache", "warm-up"}
    assert all(check.text[0].isupper() or check.text[0].isdigit() for check in found.values())


@pytest.mark.parametrize(
    ("name", "level", "words", "change"),
    [
        ("errors", "fail", "1 of 10 requests failed", lambda n: {"error": "boom"} if n == 3 else {}),
        ("prompt-tokens", "fail", "+50 tokens", lambda n: {"prompt_tokens": 150}),
        ("prompt-tokens", "flag", "-1 tokens", lambda n: {"prompt_tokens": 99} if n == 5 else {}),
        ("prompt-tokens", "flag", "no usage", lambda n: {"prompt_tokens": None}),
        ("output-tokens", "fail", "(3 to 3)", lambda n: {"completion_tokens": 3} if n == 2 else {}),
        ("output-tokens", "flag", "no usage", lambda n: {"completion_tokens": None}),
        ("output-tokens", "flag", "asked for", lambda n: {"completion_tokens": None, "token_source": "asked"}),
        (
            "output-tokens",
            "flag",
            "1 of 10 answers ended before",
            lambda n: {"completion_tokens": None, "finish_reason": "stop" if n == 2 else "length"},
        ),
        ("output-tokens", "flag", "do not add up", lambda n: {"chunks": [Chunk(n + 0.1, "x", 9)]}),
        ("output-tokens", "flag", "no TTFT", lambda n: {"chunks": [], "token_source": "none"} if n == 2 else {}),
        ("cache", "fail", "up to 96 tokens", lambda n: {"cached_tokens": 96} if n == 5 else {}),
        ("cache", "flag", "does not say", lambda n: {"cached_tokens": None}),
        ("warm-up", "flag", "still warming up", lambda n: {"chunks": [Chunk(n + 0.4, "x", 4)]} if n < 2 else {}),
    ],
)
def test_a_fault_is_found_and_said(name: str, level: str, words: str, change: Callable[[int], dict[str, Any]]) -> None:
    check = checks(requests(10, change))[name]
    assert check.level == level
    assert words in check.text
    assert check.text.endswith(".")


def test_few_errors_among_many_are_flagged() -> None:
    found = checks(requests(200, lambda n: {"error": "HTTP 503: busy"} if n == 7 else {}))
    assert found["errors"].level == "flag"
    assert found["errors"].text.endswith("HTTP 503: busy.")


@pytest.mark.parametrize(("ceiling", "level"), [(1000.0, "ok"), (6.0, "flag"), (4.5, "fail"), (None, "flag")])
def test_a_client_near_its_ceiling_is_told(ceiling: float | None, level: str) -> None:
    assert checks(requests(10), ceiling=ceiling)["client"].level == level


def test_a_client_that_was_held_up_is_told() -> None:
    check = checks(requests(10), late=0.08)["client"]
    assert (check.level, "80 ms" in check.text) == ("flag", True)


@pytest.mark.parametrize(("lag", "level"), [(0.001, "ok"), (0.02, "flag"), (0.3, "fail")])
def test_an_open_loop_that_lags_its_schedule_is_told(lag: float, level: str) -> None:
    load = LoadSpec(rate=1.0, arrivals="constant", requests=10, warm_up=1)
    assert checks(requests(10, lambda n: {"intended": n - lag}), load=load)["schedule"].level == level


def test_later_turns_must_find_the_turn_before_in_the_cache() -> None:
    def dialogue(cached: int) -> list[RequestRecord]:
        return requests(
            10,
            lambda n: {"id": f"s/measured/{n // 2}/{n % 2}", "turn": n % 2, "cached_tokens": cached if n % 2 else 0},
        )

    assert checks(dialogue(90), cache="reuse")["cache"].level == "ok"
    missed = checks(dialogue(10), cache="reuse")["cache"]
    assert (missed.level, "10%" in missed.text) == ("flag", True)


def test_a_shared_prefix_must_be_found_in_the_cache() -> None:
    assert checks(requests(10, lambda n: {"cached_tokens": 50}), cache="reuse")["cache"].level == "ok"
    assert checks(requests(10), cache="reuse")["cache"].level == "flag"


def test_a_scenario_that_leaves_the_cache_open_is_not_judged_by_it() -> None:
    assert "cache" not in checks(requests(10, lambda n: {"cached_tokens": 90}), cache="any")


def test_the_first_burst_of_a_closed_loop_is_no_warm_up() -> None:
    load = LoadSpec(concurrency=4, requests=20, warm_up=4)
    burst = requests(20, lambda n: {"chunks": [Chunk(n + 0.9, "x", 4)]} if n < 4 else {})
    assert checks(burst, load=load)["warm-up"].level == "ok"


def test_no_trend_is_flagged_only_without_a_warm_up() -> None:
    assert checks(requests(3))["warm-up"].level == "ok"
    assert checks(requests(3), load=LoadSpec(concurrency=1, requests=3))["warm-up"].level == "flag"


def test_a_scenario_without_requests_or_without_answers_fails() -> None:
    assert checks([])["errors"].level == "fail"
    assert [check.level for check in checks(requests(3, lambda n: {"error": "boom"})).values()] == ["fail"]
