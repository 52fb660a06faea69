"""The whole server with a tiny random model, over HTTP: what only a real engine can answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.api.live_server import post_unread, refused, wait_until
from tests.api.whole_server import WholeServer, whole_server
from tests.builders import VOCAB_SIZE, tiny_model_folder, tiny_tokenizer

CONTEXT = 512
PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, profiles: Path) -> Iterator[WholeServer]:
    folder = tiny_model_folder(tmp_path_factory.mktemp("model") / "tiny")
    flags = ("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "8", "--kv-cache-memory", "8MiB")
    with whole_server(folder, *flags, "--profile-steps", "5", "--profile-dir", str(profiles)) as running:
        yield running


def test_steps_can_be_recorded_while_the_server_goes_on(server: WholeServer, profiles: Path) -> None:
    assert server.client.post("/start_profile").json() == {"status": "started", "steps": 5}
    server.complete(PROMPT, max_tokens=100, ignore_eos=True)
    server.next_is_right()
    wait_until(lambda: any(page.read_text() for page in profiles.glob("*.md")), 30)
    (page,) = profiles.glob("*.md")
    assert page.read_text().startswith("# 5 steps of ")


def ids_of(choice: dict[str, Any]) -> list[int]:
    """Token ids, where names of tokens were asked for as ids."""
    return [int(name.removeprefix("token_id:")) for name in choice["logprobs"]["tokens"]]


def test_ids_beyond_the_tokenizer_are_never_sampled(server: WholeServer) -> None:
    limit = tiny_tokenizer().get_vocab_size()
    assert limit < VOCAB_SIZE
    fields: dict[str, Any] = {"temperature": 2, "top_k": -1, "top_p": 1, "ignore_eos": True, "max_tokens": 100}
    answer = server.complete(PROMPT, n=8, logprobs=20, return_tokens_as_token_ids=True, **fields)
    seen: set[int] = set()
    for choice in answer["choices"]:
        seen.update(ids_of(choice))
        for top in choice["logprobs"]["top_logprobs"]:
            seen.update(int(name.removeprefix("token_id:")) for name in top)
    assert len(seen) > 100
    assert max(seen) < limit
    server.next_is_right()


def test_min_tokens_holds_a_stop_id_back(server: WholeServer) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "logprobs": 0, "return_tokens_as_token_ids": True}
    first = ids_of(server.complete(PROMPT, max_tokens=1, **greedy)["choices"][0])[0]
    at_once = server.complete(PROMPT, max_tokens=100, stop_token_ids=[first], **greedy)
    assert at_once["choices"][0]["finish_reason"] == "stop"
    assert at_once["usage"]["completion_tokens"] == 1
    held = server.complete(PROMPT, max_tokens=100, stop_token_ids=[first], min_tokens=50, **greedy)
    assert held["usage"]["completion_tokens"] >= 50
    assert first not in ids_of(held["choices"][0])[:50]
    server.next_is_right()


def test_the_same_prompt_has_the_same_answer_alone_and_among_others(server: WholeServer) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    prompt = "今天天气很好，我们一起去公园吧。" * 3
    alone = server.complete(prompt, **fields)
    assert server.complete(prompt, **fields)["choices"] == alone["choices"]
    others = [f"{i} and some other text " * (i % 5 + 1) for i in range(16)]
    with ThreadPoolExecutor(17) as pool:
        crowd = [pool.submit(server.complete, other, max_tokens=60, ignore_eos=True) for other in others]
        among = pool.submit(server.complete, prompt, **fields).result()
        for other in crowd:
            other.result()
    assert among["choices"] == alone["choices"]
    server.next_is_right()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_leaves_nothing_behind(server: WholeServer, stream: bool) -> None:
    before = server.gauge("generation_tokens_total")
    body = {"prompt": PROMPT * 5, "max_tokens": 400, "ignore_eos": True, "stream": stream, "n": 4}
    connection = post_unread(server.port, body)
    wait_until(lambda: server.gauge("generation_tokens_total") > before)
    connection.close()
    wait_until(server.is_idle)
    assert server.gauge("generation_tokens_total") < before + 4 * 400, "it went on to the end"
    server.next_is_right()


def test_clients_that_go_away_while_queued_leave_nothing_behind(server: WholeServer) -> None:
    """Eight sequences run at once here, so most of these wait."""
    body = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 2}
    connections = [post_unread(server.port, body) for _ in range(12)]
    wait_until(lambda: server.gauge("num_requests_waiting") > 0)
    for connection in connections:
        connection.close()
    wait_until(server.is_idle)
    server.next_is_right()


def test_four_seeded_answers_are_repeatable_and_differ(server: WholeServer) -> None:
    def texts() -> dict[int, str]:
        made: dict[int, str] = defaultdict(str)
        body = {"prompt": PROMPT, "n": 4, "seed": 11, "temperature": 1.5, "max_tokens": 20, "ignore_eos": True}
        for chunk in server.stream("/v1/completions", **body):
            made[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        return made

    first = texts()
    assert sorted(first) == [0, 1, 2, 3]
    assert len(set(first.values())) == 4
    assert texts() == first
    server.next_is_right()


def test_two_prompts_with_two_answers_are_each_prompts_own(server: WholeServer) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
    alone = [server.complete(prompt, **fields)["choices"][0]["text"] for prompt in (PROMPT, "你好")]
    both = server.complete([PROMPT, "你好"], n=2, **fields)["choices"]
    assert [choice["index"] for choice in both] == [0, 1, 2, 3]
    assert [choice["text"] for choice in both] == [alone[0], alone[0], alone[1], alone[1]]
    server.next_is_right()


def test_an_answer_without_a_length_goes_to_the_contexts_end(server: WholeServer) -> None:
    answer = server.chat("Hi", ignore_eos=True)
    assert answer["usage"]["total_tokens"] == CONTEXT
    assert answer["choices"][0]["finish_reason"] == "length"
    limits = server.chat("Hi", ignore_eos=True, max_completion_tokens=3, max_tokens=5)
    assert limits["usage"]["completion_tokens"] == 3
    server.next_is_right()


def test_an_echo_gives_the_prompts_logprobs_whether_cached_or_not(server: WholeServer) -> None:
    fields: dict[str, Any] = {"echo": True, "max_tokens": 0, "logprobs": 1}
    prompt = "A model reads the prompt, writes the first token, then the second one."
    first, second = server.complete(prompt, **fields), server.complete(prompt, **fields)
    logprobs = first["choices"][0]["logprobs"]
    assert first["choices"][0]["text"] == prompt
    assert logprobs["token_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert len(logprobs["tokens"]) == first["usage"]["prompt_tokens"]
    again = second["choices"][0]["logprobs"]["token_logprobs"][1:]
    assert again == pytest.approx(logprobs["token_logprobs"][1:], abs=1e-4)
    server.next_is_right()


def test_an_echo_and_an_answer_have_the_logprobs_of_one_text(server: WholeServer) -> None:
    """Teacher forcing the whole text again gives the answer's own log-probabilities."""
    made = server.complete(PROMPT, max_tokens=8, temperature=0, logprobs=0, echo=True, return_tokens_as_token_ids=True)
    logprobs = made["choices"][0]["logprobs"]
    again = server.complete(ids_of(made["choices"][0]), max_tokens=0, logprobs=0, echo=True)
    forced = again["choices"][0]["logprobs"]["token_logprobs"]
    assert forced[1:] == pytest.approx(logprobs["token_logprobs"][1:], abs=1e-3)


def test_the_prompt_of_several_answers_is_scored_once_and_echoed_in_each(server: WholeServer) -> None:
    made = server.complete(PROMPT, n=3, echo=True, logprobs=0, prompt_logprobs=1, max_tokens=2, seed=1, ignore_eos=True)
    size = made["usage"]["prompt_tokens"]
    for choice in made["choices"]:
        assert choice["text"].startswith(PROMPT)
        assert len(choice["logprobs"]["tokens"]) == size + 2
        assert len(choice["prompt_logprobs"]) == size
    assert server.is_idle()
    server.next_is_right()


def test_only_allowed_ids_and_no_bad_word_are_in_an_answer(server: WholeServer) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}
    free = server.complete(PROMPT, **fields)["choices"][0]["token_ids"]
    narrow = server.complete(PROMPT, allowed_token_ids=[66, 67], **fields)["choices"][0]["token_ids"]
    assert len(narrow) == 6
    assert set(narrow) <= {66, 67}
    printable = server.complete(PROMPT, allowed_token_ids=[65], **fields)["choices"][0]
    word = printable["text"][:2]
    without = server.complete(PROMPT, allowed_token_ids=[65, 66], bad_words=[word], **fields)["choices"][0]
    assert word not in without["text"]
    assert server.complete(PROMPT, **fields)["choices"][0]["token_ids"] == free
    server.next_is_right()


@pytest.mark.parametrize("field", [{"bad_words": ["x"]}, {"allowed_token_ids": [65]}])
def test_what_forbids_tokens_is_refused_beside_a_form_that_may_need_them(
    server: WholeServer, field: dict[str, Any]
) -> None:
    body = {"prompt": PROMPT, "response_format": {"type": "json_object"}, **field}
    refused(server.client.post("/v1/completions", json=body), next(iter(field)))
    server.next_is_right()


def test_a_bias_of_100_decides_and_one_of_minus_100_forbids(server: WholeServer) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 5, "logprobs": 0, "return_tokens_as_token_ids": True}
    forced = ids_of(server.complete(PROMPT, logit_bias={"65": 100}, **greedy)["choices"][0])
    assert forced == [65] * 5
    plain = ids_of(server.complete(PROMPT, **greedy)["choices"][0])
    other = ids_of(server.complete(PROMPT, logit_bias={str(plain[0]): -100}, **greedy)["choices"][0])
    assert plain[0] not in other
    server.next_is_right()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {str(VOCAB_SIZE - 1): 1}),
        ("stop_token_ids", [999999]),
        ("repetition_penalty", 0),
        ("top_p", 0),
        ("n", 1_000_000),
        ("logprobs", 1_000_000),
        ("prompt", ""),
        ("prompt", [VOCAB_SIZE - 1]),
    ],
)
def test_what_cannot_be_run_never_reaches_the_engine(server: WholeServer, field: str, value: object) -> None:
    refused(server.client.post("/v1/completions", json={"prompt": PROMPT, field: value}), field)
    server.next_is_right()


def test_a_stop_string_ends_the_sequence_in_the_engine_too(server: WholeServer) -> None:
    text = server.complete(PROMPT, max_tokens=60, temperature=0, ignore_eos=True)["choices"][0]["text"]
    stop = text[20:24]
    cut = server.complete(PROMPT, max_tokens=400, temperature=0, ignore_eos=True, stop=stop)
    assert cut["choices"][0]["text"] == text[: text.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"
    wait_until(server.is_idle)
    server.next_is_right()


def test_a_prompt_that_ends_inside_a_character_streams_valid_text(server: WholeServer) -> None:
    ids = server.post("/tokenize", prompt="你好")["tokens"][:-1]
    chunks = server.stream("/v1/completions", prompt=ids, max_tokens=10, temperature=0)
    whole = server.complete(ids, max_tokens=10, temperature=0)["choices"][0]["text"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole
    server.next_is_right()


def test_metrics_have_every_name_that_vllms_dashboard_asks_for(server: WholeServer) -> None:
    server.complete(PROMPT, max_tokens=4, ignore_eos=True)
    lines = server.client.get("/metrics").text.splitlines()
    names = {line.split("{")[0].removeprefix("firsttoken:") for line in lines if not line.startswith("#")}
    assert names >= {
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "gpu_cache_usage_perc",
        "prompt_tokens_total",
        "generation_tokens_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "num_preemptions_total",
        "request_success_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket",
        "time_per_output_token_seconds_bucket",
        "request_time_per_output_token_seconds_bucket",
        "e2e_request_latency_seconds_bucket",
        "request_queue_time_seconds_sum",
        "request_prefill_time_seconds_sum",
        "request_decode_time_seconds_sum",
        "request_inference_time_seconds_sum",
        "request_prompt_tokens_bucket",
        "request_generation_tokens_bucket",
        "request_max_num_generation_tokens_sum",
        "request_params_n_bucket",
        "request_params_max_tokens_bucket",
        "iteration_tokens_total_bucket",
        "cache_config_info",
    }


def test_the_prefix_cache_shows_in_usage_and_a_salt_keeps_it_apart(server: WholeServer) -> None:
    prompt = "Cached words, said again and again. " * 3
    fields: dict[str, Any] = {"max_tokens": 1, "temperature": 0}

    def cached(salt: str) -> int:
        answer = server.complete(prompt, cache_salt=salt, **fields)
        tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return tokens

    assert cached("mine") == 0
    assert cached("mine") > 0
    assert cached("yours") == 0
    four = server.complete(prompt, cache_salt="fours", n=4, **fields)
    assert four["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "they share what the first one computed"
    server.next_is_right()
