"""Load and lengths from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.bench.recipe import build
from firsttoken.bench.records import LoadSpec
from firsttoken.bench.scenario import RandomPrompts
from firsttoken.bench.scenarios import built_in
from firsttoken.bench.wanted import Wanted, changed, own_recipe
from firsttoken.errors import ConfigError


def test_lengths_and_one_load_are_a_scenario_by_themselves() -> None:
    built = build(own_recipe(Wanted(input_tokens=100, output_tokens=20, concurrencies=(4,), requests=40)))
    assert isinstance(built.workload, RandomPrompts)
    assert (built.workload.input_tokens, built.workload.output_tokens) == (100, 20)
    assert built.loads == [LoadSpec(concurrency=4, requests=40, warm_up=1)]
    assert (built.sweep, built.cache) == (None, "cold")


def test_several_rates_are_a_sweep_of_an_open_loop() -> None:
    built = build(own_recipe(Wanted(rates=(2.0, 4.0), duration=10.0)))
    assert [(load.rate, load.arrivals, load.duration) for load in built.loads] == [
        (2.0, "poisson", 10.0),
        (4.0, "poisson", 10.0),
    ]
    assert built.sweep == "rate"


def test_a_shared_prefix_is_no_cold_cache() -> None:
    recipe = own_recipe(Wanted(input_tokens=100, shared_tokens=64))
    assert (recipe.cache, recipe.prompt.shared_tokens) == ("any", 64)


def test_a_named_scenario_takes_another_load_and_keeps_its_prompts() -> None:
    sweep = build(changed(built_in()["sweep"], Wanted(concurrencies=(3,), warm_up=0)))
    assert sweep.loads == [LoadSpec(concurrency=3, requests=12)]
    quicksort = changed(built_in()["quicksort"], Wanted(requests=2))
    assert quicksort.load == LoadSpec(concurrency=1, requests=2, warm_up=1)
    assert quicksort.prompt == built_in()["quicksort"].prompt
    assert quicksort.title == built_in()["quicksort"].title


def test_a_title_says_which_of_its_lengths_were_changed() -> None:
    recipe = changed(built_in()["sweep"], Wanted(output_tokens=24))
    assert recipe.title == "Throughput against concurrency, 512 in, 256 out (here 24 out)"
    assert recipe.title_zh.endswith("（此处输出 24）")


def test_a_trace_is_replayed_from_its_first_time_on(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("10\n10.5  # a remark\n12\n")
    assert build(own_recipe(Wanted(trace=path))).loads[0].trace == [0.0, 0.5, 2.0]
    path.write_text("1\nsoon\n")
    with pytest.raises(ConfigError, match=r"line 2 of .* is not a time in seconds: 'soon'"):
        own_recipe(Wanted(trace=path))


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        ("sweep", Wanted(concurrencies=(1,), rates=(1.0,)), "Give one of --concurrency, --rate and --trace"),
        ("sweep", Wanted(arrivals="constant"), "give its --rate too"),
        ("quicksort", Wanted(input_tokens=9), "has prompts of its own"),
        ("intruder", Wanted(rates=(1.0,)), "has a schedule of its own"),
        ("intruder", Wanted(concurrencies=(1, 2)), "one --concurrency at a time"),
    ],
)
def test_wishes_that_cannot_be_met_are_one_sentence(name: str, wanted: Wanted, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(built_in()[name], wanted)
