from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from tests.builders import VOCAB_SIZE, Kind, tiny_model_folder
from tests.engine.tiny_engine import Answer, TinyEngine, request

from firsttoken.engine.step_lane import ThreadLane
from firsttoken.kernels.cpu_forms import Form
from firsttoken.kernels.cpu_ops import cpu_kernels
from firsttoken.types import GenerateRequest, Grammar, SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
MIXED = [
    SamplingParams(max_tokens=12, seed=1, ignore_eos=True),
    SamplingParams(max_tokens=12, seed=2, temperature=0.7, top_k=20, top_p=0.8, ignore_eos=True),
    SamplingParams(max_tokens=12, seed=3, temperature=1.3, top_p=0.7, min_p=0.01, ignore_eos=True),
    SamplingParams(max_tokens=12, seed=4, repetition_penalty=1.4, presence_penalty=1.0, ignore_eos=True),
    SamplingParams(max_tokens=12, temperature=0.0, frequency_penalty=1.5, ignore_eos=True),
    SamplingParams(max_tokens=12, seed=5, logit_bias={7: 3.0, 9: -4.0}, logprobs=2, ignore_eos=True),
]


GUIDED = [
    SamplingParams(max_tokens=12, seed=1, grammar=Grammar(kind="json_object", source="")),
    GREEDY,
    SamplingParams(max_tokens=12, temperature=0.0, grammar=Grammar(kind="regex", source="([a-z]{3} )+")),
    SamplingParams(max_tokens=12, seed=4, repetition_penalty=1.4, min_tokens=9, ignore_eos=True),
    SamplingParams(max_tokens=12, seed=5, min_tokens=6, logprobs=2, grammar=Grammar(kind="regex", source="[0-9]*")),
    MIXED[1],
]


@pytest.fixture(scope="module", params=["qwen3", "llama", "qwen2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind: Kind = request.param
    return tiny_model_folder(tmp_path_factory.mktemp(kind), kind, tied=kind == "llama")


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("model"), "qwen3")


@pytest.fixture
def tiny(qwen3: Path) -> Iterator[TinyEngine]:
    with TinyEngine(qwen3) as engine:
        yield engine


def requests(sampling: list[SamplingParams]) -> list[GenerateRequest]:
    """One a sampling: prompts of several lengths, two of which begin alike."""
    random = Random(0)
    prompts = [[random.randrange(300) for _ in range(length)] for length in (3, 30, 17, 9, 42, 1)]
    prompts[2][:12] = prompts[1][:12]
    return [request(f"r{i}", prompts[i % 6], params) for i, params in enumerate(sampling)]


def the_same(tiny: TinyEngine, answers: dict[str, Answer], base: TinyEngine, expected: dict[str, Answer]) -> None:
    assert {key: answer.token_ids for key, answer in answers.items()} == {
        key: answer.token_ids for key, answer in expected.items()
    }
    assert tiny.runner.logits_at.keys() == base.runner.logits_at.keys()
    for key, logits in tiny.runner.logits_at.items():
        torch.testing.assert_close(logits, base.runner.logits_at[key], atol=1e-4, rtol=0)


def check_independence(folder: Path, asked: list[GenerateRequest], form: Form | None) -> None:
    with TinyEngine(folder, enable_prefix_caching=False, form=form) as base:
        expected = base.run_alone(asked)
        with TinyEngine(folder, form=form) as company:
            the_same(company, company.run(asked), base, expected)
            again = company.run(asked)  # now from the prefix cache
            assert again["r4"].num_cached_tokens == 40
            the_same(company, again, base, expected)
        with TinyEngine(folder, max_num_batched_tokens=6, max_num_seqs=6, form=form) as chunked:
            the_same(chunked, chunked.run(asked), base, expected)
        with TinyEngine(folder, num_blocks=20, form=form) as cramped:
            the_same(cramped, cramped.run(asked), base, expected)
            assert cramped.engine.stats().counters["num_preemptions_total"] > 0


@pytest.mark.parametrize("sampling", [[GREEDY] * 6, MIXED, GUIDED], ids=["greedy", "mixed", "guided"])
def test_the_result_depends_on_neither_company_nor_chunks_nor_cache_nor_preemption(
    folder: Path, sampling: list[SamplingParams]
) -> None:
    check_independence(folder, requests(sampling), None)


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_low_bit_weights_are_as_independent_of_company(qwen3: Path, form: Form) -> None:
    if cpu_kernels() is None:
        pytest.skip("no C compiler here")
    check_independence(qwen3, requests(MIXED), form)


def test_a_dynamic_rope_past_its_length_gives_the_same_in_every_company(tmp_path: Path) -> None:
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    folder = tiny_model_folder(tmp_path / "model", "llama", rope_scaling=scaling, max_position_embeddings=24)
    asked = requests([GREEDY] * 6)
    with TinyEngine(folder, enable_prefix_caching=False) as base:
        expected = base.run_alone(asked)
        with TinyEngine(folder, max_num_batched_tokens=8) as other:
            for _ in range(2):
                the_same(other, other.run(asked), base, expected)


def test_ids_beyond_the_tokenisers_are_never_sampled(tiny: TinyEngine) -> None:
    hot = [
        SamplingParams(temperature=50.0, max_tokens=40, seed=1, ignore_eos=True),
        SamplingParams(temperature=50.0, top_k=400, max_tokens=40, seed=2, ignore_eos=True),
        SamplingParams(temperature=50.0, top_p=0.99, max_tokens=40, seed=3, ignore_eos=True),
        SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True, logprobs=20),
    ]
    assert tiny.info.token_id_limit < VOCAB_SIZE
    answers = tiny.run(requests(hot))
    for answer in answers.values():
        assert len(answer.token_ids) == 40
        assert max(answer.token_ids) < tiny.info.token_id_limit
    for output in answers["r3"].outputs:
        assert output.logprobs is not None
        assert all(id_ < tiny.info.token_id_limit for id_, _ in output.logprobs[0].top)


def test_logprobs_are_of_the_models_own_distribution(tiny: TinyEngine) -> None:
    asked = requests([replace(MIXED[5], logprobs=3)])
    answer = tiny.run(asked)["r0"]
    for i, output in enumerate(answer.outputs):
        assert output.logprobs is not None
        (logprob,) = output.logprobs
        own = torch.log_softmax(tiny.runner.logits_at["r0", 0, 3 + i][: tiny.info.token_id_limit], dim=-1)
        assert logprob.token_id == answer.token_ids[i]
        assert logprob.logprob == pytest.approx(float(own[logprob.token_id]), abs=1e-4)
        assert logprob.rank == 1 + int((own > own[logprob.token_id]).sum())
        assert [id_ for id_, _ in logprob.top] == own.topk(3).indices.tolist()


def test_prompt_logprobs_are_the_same_in_chunks_and_match_a_forced_run(qwen3: Path) -> None:
    asked = requests([replace(GREEDY, prompt_logprobs=2)] * 2)[1]
    with TinyEngine(qwen3) as whole, TinyEngine(qwen3, max_num_batched_tokens=8) as chunked:
        results = [tiny.run([asked])["r1"].outputs[0].prompt_logprobs for tiny in (whole, chunked)]
        ids = asked.prompt_token_ids
        for result in results:
            assert result is not None
            assert result[0] is None
            assert len(result) == len(ids)
            for position in (1, 9, 20):
                entry = result[position]
                assert entry is not None
                forced = request(f"f{position}", ids[:position], replace(GREEDY, max_tokens=1))
                whole.run([forced])
                logits = whole.runner.logits_at[f"f{position}", 0, position][: whole.info.token_id_limit]
                own = torch.log_softmax(logits, dim=-1)
                assert entry.token_id == ids[position]
                assert entry.logprob == pytest.approx(float(own[ids[position]]), abs=1e-4)
                assert [id_ for id_, _ in entry.top] == own.topk(2).indices.tolist()


def output_of(tiny: TinyEngine, **sampling: object) -> list[int]:
    params = SamplingParams(**({"max_tokens": 16, "seed": 11, "ignore_eos": True} | sampling))  # type: ignore[arg-type]  # values are of many types
    return tiny.run([request("r", [5, 6, 7, 8], params)])["r"].token_ids


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.2},
        {"top_k": 3},
        {"top_p": 0.3},
        {"min_p": 0.5},
        {"seed": 12},
        {"repetition_penalty": 5.0},
        {"presence_penalty": 20.0},
        {"frequency_penalty": 20.0},
        {"logit_bias": {3: 100.0}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_parameter_changes_the_output(tiny: TinyEngine, change: dict[str, object]) -> None:
    plain = output_of(tiny)
    assert output_of(tiny) == plain
    assert output_of(tiny, **change) != plain


def test_a_strong_presence_penalty_forbids_repeats_and_a_bias_forces_a_token(tiny: TinyEngine) -> None:
    output = output_of(tiny, temperature=0.0, presence_penalty=100.0, max_tokens=60)
    assert len(set(output)) == 60
    assert output_of(tiny, logit_bias={33: 100.0}) == [33] * 16
    prompt = [5, 6, 7, 8]
    assert not set(output_of(tiny, temperature=0.0, repetition_penalty=1e6, logit_bias=dict.fromkeys(prompt, 5.0))) & {
        *prompt
    }


def test_end_ids_and_stop_ids_wait_for_min_tokens(tiny: TinyEngine) -> None:
    eos = tiny.info.eos_token_ids[0]
    for end, extra in ((eos, {"ignore_eos": False}), (44, {"stop_token_ids": (44,)})):
        wanted = {"logit_bias": {end: 100.0}, "max_tokens": 30} | extra
        assert output_of(tiny, **wanted) == [end]
        output = output_of(tiny, min_tokens=9, **wanted)
        assert len(output) == 10
        assert output.index(end) == 9


def test_launch_returns_while_the_step_runs_and_results_keep_their_order() -> None:
    gate = threading.Event()
    lane: ThreadLane[int] = ThreadLane(lambda: None)

    def work(value: int) -> Callable[[], int]:
        def run() -> int:
            assert gate.wait(5)
            return value

        return run

    lane.submit(work(1))
    lane.submit(work(2))  # both are queued, though nothing can run yet
    gate.set()
    assert [lane.take(), lane.take()] == [1, 2]
    lane.close()


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("no"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), MemoryError()],
)
def test_a_step_out_of_memory_fails_its_requests_and_the_runner_lives(tiny: TinyEngine, error: Exception) -> None:
    asked = requests([GREEDY])
    expected = tiny.run(asked)["r0"].token_ids
    tiny.runner.fail_next = error
    failed = tiny.run(asked)["r0"].outputs[-1]
    assert failed.finish_reason == "error"
    assert failed.error is not None
    assert "--max-num-batched-tokens" in failed.error
    tiny.runner.plans.clear()
    assert tiny.run(asked)["r0"].token_ids == expected


def test_another_failure_is_not_taken_for_memory(tiny: TinyEngine) -> None:
    tiny.runner.fail_next = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        tiny.run(requests([GREEDY]))


def test_a_step_with_guided_rows_that_fails_ends_them_and_the_next_one_runs(qwen3: Path) -> None:
    with TinyEngine(qwen3) as tiny:
        asked = requests(GUIDED)
        expected = tiny.run(asked)
        tiny.runner.fail_next = torch.OutOfMemoryError()
        answers = tiny.run(asked)
        assert {answer.outputs[-1].finish_reason for answer in answers.values()} == {"error"}
        again = tiny.run(asked)
    assert {key: answer.token_ids for key, answer in again.items()} == {
        key: answer.token_ids for key, answer in expected.items()
    }
