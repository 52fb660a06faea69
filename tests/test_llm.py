from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firsttoken import LLM
from firsttoken.errors import ConfigError, InvalidRequest
from firsttoken.types import SamplingParams
from tests.builders import tiny_model_folder

GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tiny_model_folder(tmp_path_factory.mktemp("tiny"), "llama", generation={"temperature": 0.0, "top_k": 3})
    with LLM(str(folder), device="cpu", dtype="float32", cpu_threads=1) as llm:
        yield llm


def test_outputs_come_in_the_prompts_order_whatever_their_lengths(llm: LLM) -> None:
    prompts = ["The quick brown fox", "def add(", "今天", "a"]
    params = [replace(GREEDY, max_tokens=count) for count in (20, 3, 11, 1)]
    results = llm.generate(prompts, params)
    assert [result.prompt for result in results] == prompts
    for result, prompt, each in zip(results, prompts, params, strict=True):
        (output,) = result.outputs
        assert result.prompt_token_ids == llm.tokenizer.encode(prompt)
        assert len(output.token_ids) == each.max_tokens
        assert output.finish_reason == "length"
        assert output.text == llm.generate(prompt, each)[0].outputs[0].text


def test_text_and_token_ids_are_the_same_prompt(llm: LLM) -> None:
    ids = llm.tokenizer.encode("The quick brown fox")
    by_text, by_ids, by_list = (llm.generate(p, GREEDY)[0] for p in ("The quick brown fox", ids, [ids]))
    assert by_text.outputs == by_ids.outputs == by_list.outputs
    assert by_ids.prompt is None


def test_the_models_defaults_hold_where_nothing_is_given(llm: LLM) -> None:
    assert llm.get_default_sampling_params() == SamplingParams(temperature=0.0, top_k=3)
    first, second = (llm.generate("The quick")[0].outputs[0] for _ in range(2))
    assert first == second
    assert len(first.token_ids) <= 16


def test_a_stop_string_ends_the_text_and_its_tokens(llm: LLM) -> None:
    whole = llm.generate("The quick", GREEDY)[0].outputs[0]
    middle = len(whole.text) // 2
    stop = whole.text[middle : middle + 3]
    (output,) = llm.generate("The quick", replace(GREEDY, stop=("never there", stop)))[0].outputs
    assert output.finish_reason == "stop"
    assert output.text == whole.text[: whole.text.index(stop)]
    assert output.token_ids == whole.token_ids[: len(output.token_ids)]
    assert len(output.token_ids) < len(whole.token_ids)
    assert llm.generate("The quick", replace(GREEDY, stop=(stop,), min_tokens=24))[0].outputs[0].text == whole.text


def test_an_end_id_is_counted_and_not_shown(llm: LLM) -> None:
    eos = llm.info.eos_token_ids[0]
    params = SamplingParams(temperature=0.0, max_tokens=9, min_tokens=2, logit_bias={eos: 100.0})
    (output,) = llm.generate("The quick", params)[0].outputs
    assert output.finish_reason == "stop"
    assert output.token_ids[-1] == eos
    assert len(output.token_ids) == 3
    assert "<|im_end|>" not in output.text


def test_n_answers_differ_and_repeat_with_a_seed(llm: LLM) -> None:
    params = SamplingParams(temperature=2.0, max_tokens=12, seed=5, ignore_eos=True, logprobs=2)
    (result,) = llm.generate(["The quick"], params, n=3)
    assert [output.index for output in result.outputs] == [0, 1, 2]
    assert len({tuple(output.token_ids) for output in result.outputs}) == 3
    assert llm.generate("The quick", params, n=3)[0].outputs == result.outputs
    for output in result.outputs:
        assert output.logprobs is not None
        assert [entry.token_id for entry in output.logprobs] == output.token_ids
        assert all(len(entry.top) == 2 for entry in output.logprobs)


def test_tokens_from_the_prefix_cache_are_those_that_the_first_answer_found(llm: LLM) -> None:
    prompt = "Words that nobody has said before, and again, and again, and again."
    cold = llm.generate(prompt, replace(GREEDY, max_tokens=2), n=3)[0]
    warm = llm.generate(prompt, replace(GREEDY, max_tokens=2), n=3)[0]
    assert cold.num_cached_tokens == 0
    assert 0 < warm.num_cached_tokens < len(warm.prompt_token_ids)


def test_prompt_logprobs_cover_the_prompt(llm: LLM) -> None:
    (result,) = llm.generate(["The quick brown"], replace(GREEDY, prompt_logprobs=1))
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs[0] is None
    assert [e.token_id for e in result.prompt_logprobs[1:] if e is not None] == result.prompt_token_ids[1:]


def test_chat_takes_one_conversation_or_several(llm: LLM) -> None:
    first = [{"role": "user", "content": "Hello"}]
    second = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "今天"}]
    (alone,) = llm.chat(first, GREEDY)
    both = llm.chat([first, second], GREEDY)
    assert both[0].outputs == alone.outputs
    assert both[1].prompt_token_ids == llm.tokenizer.encode_chat(second)


def test_progress_counts_to_the_end(llm: LLM) -> None:
    seen: list[tuple[int, int]] = []
    llm.generate(["a", "b"], GREEDY, n=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 4) for i in range(5)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("min_p", 2.0),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("frequency_penalty", math.nan),
        ("stop", ("",)),
        ("stop_token_ids", (10**6,)),
        ("logit_bias", {10**6: 1.0}),
        ("logit_bias", {1: math.nan}),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("logprobs", -1),
    ],
)
def test_wrong_parameters_are_refused_by_name_and_the_next_call_works(llm: LLM, field: str, value: Any) -> None:
    params: SamplingParams = replace(GREEDY, **{field: value})
    with pytest.raises(InvalidRequest) as refused:
        llm.generate(["good", "also good"], [GREEDY, params])
    assert refused.value.param == field
    assert len(llm.generate("good", GREEDY)[0].outputs[0].token_ids) == 24


@pytest.mark.parametrize("prompt", ["", [], [[]], [10**6], "word " * 2000])
def test_prompts_that_cannot_be_are_refused(llm: LLM, prompt: Any) -> None:
    if prompt == []:
        assert llm.generate(prompt, GREEDY) == []
        return
    with pytest.raises(InvalidRequest):
        llm.generate(prompt, GREEDY)
    assert llm.generate("good", GREEDY)[0].outputs[0].finish_reason == "length"


def test_as_many_parameter_sets_as_prompts(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="2 prompts and 1 sets"):
        llm.generate(["a", "b"], [GREEDY])


def test_unknown_options_and_closed_engines_are_refused(tmp_path: Path) -> None:
    folder = str(tiny_model_folder(tmp_path / "tiny"))
    with pytest.raises(ConfigError, match="no option 'colour'"):
        LLM(folder, colour="red")
    llm = LLM(folder, device="cpu", dtype="float32", cpu_threads=1)
    llm.close()
    llm.close()
    with pytest.raises(ConfigError, match="closed"):
        llm.generate("a", GREEDY)
