"""Scenarios as files describe them: those that come with firsttoken, and a user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firsttoken.bench.recipe import Arrival, Prompt, Recipe, RecipeTurn, build, check, fit, load_file
from firsttoken.bench.records import LoadSpec
from firsttoken.bench.scenario import UNIQUE, FixedDialogues, Parts, RandomPrompts
from firsttoken.bench.scenarios import SHORT_SET, built_in, choose, plan
from firsttoken.errors import ConfigError

LATE = Arrival(tokens=1, output_tokens=1)


def recipe(**changes: object) -> Recipe:
    fields: dict[str, object] = {
        "name": "mine",
        "prompt": Prompt(tokens=4096),
        "output_tokens": 512,
        "load": LoadSpec(concurrency=1),
    }
    return Recipe(**{**fields, **changes})  # type: ignore[arg-type]  # a test's own mistakes show at once


def test_every_scenario_that_comes_with_us_is_described_in_both_languages_and_builds() -> None:
    for one in built_in().values():
        assert all((one.title, one.title_zh, one.description, one.description_zh)), one.name
        assert any("一" <= letter <= "鿿" for letter in one.title_zh + one.description_zh)
        assert build(one).loads
    assert set(SHORT_SET) <= set(built_in())


def test_the_scenarios_of_the_performance_page_fit_the_context_that_it_serves_with() -> None:
    own = load_file(Path(__file__).parents[2] / "benchmarks" / "gpu.toml")
    scenarios, notes = plan(choose(["all"], own), 40_960)
    assert {one.name for one in scenarios} == {*built_in(), *own}
    assert not notes
    assert [one.name for one in scenarios if one.extra_body] == ["intruder"]
    assert next(one for one in scenarios if one.name == "intruder").extra_body == {"return_token_ids": True}


def test_no_two_requests_of_a_cold_text_begin_alike() -> None:
    for one in built_in().values():
        if one.cache == "cold":
            assert all(UNIQUE in text[:20] for text in one.prompt.texts), one.name


def test_the_support_dialogue_scripts_every_answer_but_the_last() -> None:
    workload = build(built_in()["support"]).workload
    assert isinstance(workload, FixedDialogues)
    turns = workload.dialogues[0].turns
    assert [turn.reply is not None for turn in turns] == [True] * 4 + [False]
    assert [len(turn.messages) for turn in turns] == [2, 1, 1, 1, 1]  # the system message opens the first turn alone
    assert UNIQUE in turns[0].messages[0]["content"]


def test_a_sweep_takes_four_rounds_of_every_slot() -> None:
    built = build(recipe(concurrencies=[1, 4, 16]))
    assert [(load.concurrency, load.requests) for load in built.loads] == [(1, 8), (4, 16), (16, 64)]
    assert built.sweep == "concurrency"


def test_an_arrival_comes_after_the_streams_and_is_told_apart() -> None:
    built = build(
        recipe(
            load=LoadSpec(concurrency=3, warm_up=2),
            arrival=Arrival(tokens=9000, output_tokens=8, after_chunks=3),
        )
    )
    assert built.loads == [LoadSpec(concurrency=3, requests=4, warm_up=2, held=1, held_until=3)]
    assert built.loads[0].label == "3 in flight, then 1"
    assert isinstance(built.workload, Parts)
    assert built.workload.counts == [3, 1]
    first, second = built.workload.workloads
    assert isinstance(first, RandomPrompts)
    assert isinstance(second, RandomPrompts)
    assert (first.group, second.group, second.input_tokens) == ("background", "arrival", 9000)


def test_a_long_prompt_is_scaled_down_to_the_context_and_that_is_said() -> None:
    fitted = fit(recipe(prompt=Prompt(tokens=32768)), 8192)
    assert fitted.recipe is not None
    assert fitted.recipe.prompt.tokens == 8192 - 512 - 64
    assert (fitted.recipe.title, fitted.recipe.title_zh) == ("mine (here 7,616 in)", "mine（此处输入 7616）")
    assert fitted.note == (
        "mine: the server's context is 8,192 tokens, so it sends prompts of 7,616 tokens instead of 32,768."
    )
    assert fit(recipe(), 8192) == fit(recipe(), None)
    assert fit(recipe(), 8192).note == ""


def test_what_cannot_fit_is_skipped_with_its_reason() -> None:
    scenarios, notes = plan([recipe(), recipe(name="short", output_tokens=64)], 700)
    assert [one.name for one in scenarios] == ["short"]
    assert notes[0] == "mine: the server's context is 700 tokens, too few for 512 tokens out; skipped."
    with pytest.raises(ConfigError, match=r"No scenario fits this server\. mine: .* skipped\."):
        plan([recipe()], 700)


def test_a_users_file_in_toml_or_json_joins_the_names(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "own.toml", tmp_path / "own.json"
    toml.write_text(
        '[[scenario]]\nname = "quicksort"\noutput_tokens = 8\nprompt.texts = ["hello"]\nload = { concurrency = 2 }\n'
    )
    as_json.write_text(
        json.dumps(
            {"scenario": [{"name": "q", "output_tokens": 8, "prompt": {"tokens": 9}, "load": {"concurrency": 2}}]}
        )
    )
    assert load_file(as_json)["q"].prompt.tokens == 9
    own = load_file(toml)
    assert [one.output_tokens for one in choose([], own)] == [8]  # all of one's own, where none is named
    assert [one.output_tokens for one in choose(["quicksort", "long-4k"], own)] == [8, 512]


def test_a_dataset_is_read_by_what_it_holds(tmp_path: Path) -> None:
    lines, conversations = tmp_path / "a.jsonl", tmp_path / "b.json"
    lines.write_text('{"prompt": "one"}\n{"prompt": "two", "max_tokens": 3}\n')
    conversations.write_text(json.dumps([{"conversations": [{"from": "human", "value": "hi"}]}]))
    for path, answers in ((lines, [64, 3]), (conversations, [64])):
        workload = build(recipe(prompt=Prompt(dataset=str(path)), output_tokens=64)).workload
        assert isinstance(workload, FixedDialogues)
        assert [dialogue.turns[0].max_tokens for dialogue in workload.dialogues] == answers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": Prompt()}, "needs exactly one of prompt.texts"),
        ({"prompt": Prompt(tokens=4, texts=["x"])}, "needs exactly one of prompt.texts"),
        ({"name": "a@b"}, "without '@'"),
        ({"output_tokens": 0}, "output_tokens must be above zero"),
        ({"concurrencies": [1, 0]}, "concurrencies must be above zero"),
        ({"load": LoadSpec()}, "needs load.concurrency .* or load.arrivals"),
        ({"load": LoadSpec(arrivals="poisson")}, "need load.rate"),
        ({"concurrencies": [1], "rates": [2.0]}, "not both"),
        ({"prompt": Prompt(turns=[RecipeTurn(user="x")]), "arrival": LATE}, "an arrival comes among"),
    ],
)
def test_a_scenario_that_contradicts_itself_is_one_sentence(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(recipe(**changes))


def test_a_wrong_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(ConfigError, match=r"x\.toml cannot be read"):
        load_file(path)
    path.write_text('[[scenario]]\nname = "x"\noutput = 3\n')
    with pytest.raises(ConfigError, match=r"x\.toml is wrong: .*output"):
        load_file(path)


def test_an_unknown_scenario_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'quicksort'"):
        choose(["quiksort"])
    assert len(choose(["all"])) == len(built_in())
