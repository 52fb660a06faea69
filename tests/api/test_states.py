"""What clients are told while the engine loads, drains, is full, or is gone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.api.live_server import LiveServer, live_server, refused, wait_until

from firsttoken.errors import InvalidRequest
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import TokenLogprob
from firsttoken.version import __version__


def in_thread(call: Callable[[], httpx.Response]) -> tuple[threading.Thread, list[httpx.Response]]:
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


def test_a_loading_server_says_how_far_it_is(server: LiveServer) -> None:
    server.backend.state = "loading"
    response = server.client.get("/health")
    assert response.status_code == 503
    assert response.json() == {"status": "loading", "phase": "weights", "fraction": 0.5}
    assert server.client.get("/ready").status_code == 503
    for answer in (server.chat(), server.complete(), server.client.get("/v1/models"), server.post("/tokenize")):
        error = refused(answer, None, 503)
        assert error["message"] == "The model is still loading (weights, 50%)."
        assert answer.headers["retry-after"] == "1"
    assert 'firsttoken:engine_state{state="loading"} 1.0' in server.client.get("/metrics").text


def test_a_ready_server_answers_its_probes(server: LiveServer) -> None:
    for path in ("/health", "/ready", "/ping"):
        assert server.client.get(path).json() == {"status": "ready"}
    assert server.client.post("/ping").status_code == 200
    assert server.client.get("/version").json() == {"version": __version__}


def test_a_server_whose_engine_hangs_is_not_healthy_and_takes_nothing(server: LiveServer) -> None:
    server.backend.state = "hung"
    for path in ("/health", "/ready", "/ping"):
        answer = server.client.get(path)
        assert (answer.status_code, answer.json()) == (503, {"status": "hung"})
        assert int(answer.headers["retry-after"]) >= 1
    refusal = server.chat()
    assert refused(refusal, None, 503)["message"].startswith("The engine does not answer")
    assert int(refusal.headers["retry-after"]) >= 1
    assert 'firsttoken:engine_state{state="hung"} 1.0' in server.client.get("/metrics").text
    server.backend.state = "ready"
    server.next_is_right()


def test_a_draining_server_finishes_what_runs_and_takes_nothing_new(server: LiveServer) -> None:
    server.backend.pace = 0.02
    thread, answers = in_thread(server.chat)
    wait_until(lambda: bool(server.backend.running))
    server.call(server.backend.drain)
    refusal = server.complete()
    refused(refusal, None, 503)
    assert int(refusal.headers["retry-after"]) >= 1
    assert server.client.get("/ready").status_code == 503
    assert server.client.get("/health").status_code == 200
    thread.join(5)
    assert answers[0].json()["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_dies_in_mid_answer_hangs_nobody(server: LiveServer, stream: bool) -> None:
    server.backend.pace = 0.02
    thread, answers = in_thread(lambda: server.chat(stream=stream))
    wait_until(lambda: server.backend.steps > 2)
    server.call(server.backend.die)
    thread.join(5)
    assert not thread.is_alive()
    if stream:
        last = [event for event in answers[0].text.split("\n\n") if event][-1]
        assert last.startswith('data: {"error":{"message":"The engine stopped."')
    else:
        refused(answers[0], None, 503)
    assert server.client.get("/health").status_code == 503
    assert server.client.get("/health").json() == {"status": "dead"}
    refused(server.chat(), None, 503)


def test_more_requests_than_the_queue_holds_are_told_at_once(server: LiveServer) -> None:
    server.backend.pace = 0.02
    server.backend.capacity = 2
    first, second = in_thread(server.chat), in_thread(lambda: server.chat(stream=True))
    wait_until(lambda: len(server.backend.running) == 2)
    for body in ({}, {"stream": True}):
        response = server.chat(**body)
        error = refused(response, None, 429)
        assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
        assert response.headers["retry-after"] == "2"
    for thread, answers in (first, second):
        thread.join(5)
        assert answers[0].status_code == 200
    server.next_is_right()


def test_what_the_engine_refuses_is_a_400_with_its_sentence(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer) as server:
        server.backend.refuses = InvalidRequest("It does not fit the KV cache.", param="prompt", code="too_large")
        error = refused(server.complete(), "prompt")
        assert error["message"] == "It does not fit the KV cache."


def test_a_fault_of_the_server_itself_tells_nothing_of_its_inside(server: LiveServer) -> None:
    server.backend.script = lambda _request, _index: ["no id"]  # type: ignore[list-item]  # a broken engine
    for stream in (False, True):
        response = server.chat(stream=stream)
        assert "The server failed on this request; its log says why." in response.text
        assert "Traceback" not in response.text
    server.next_is_right()


def test_a_fault_while_events_are_written_is_an_event_and_the_end(server: LiveServer) -> None:
    unknown = TokenLogprob(1, -0.5, 1, [("no id", -1.0)])  # type: ignore[list-item]  # a broken engine
    server.backend.logprob = lambda _token, _count: unknown
    response = server.complete(stream=True, logprobs=1)
    assert response.status_code == 200
    last = response.text.removesuffix("\n\n").rpartition("data: ")[2]
    assert json.loads(last)["error"]["code"] == "internal_error"
    assert "Traceback" not in response.text
    wait_until(lambda: not server.backend.running)
    server.backend.logprob = None
    server.next_is_right()


def test_a_fault_that_nobody_expected_is_a_500_that_carries_the_requests_id(server: LiveServer) -> None:
    server.backend.refuses = RuntimeError("it names /a/path")  # type: ignore[assignment]
    answer = server.client.post("/v1/completions", json={"prompt": "Hi"}, headers={"x-request-id": "mine"})
    assert refused(answer, None, 500)["code"] == "internal_error"
    assert answer.headers.get_list("x-request-id") == ["mine"]
    assert "path" not in answer.text
    server.backend.refuses = None
    server.next_is_right()


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/completions", 405)])
def test_wrong_urls_and_methods_are_errors_in_openais_form(
    server: LiveServer, method: str, path: str, status: int
) -> None:
    refused(server.client.request(method, path), None, status)


def test_models_go_by_the_names_that_they_were_given(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, served_model_names=("small", "org/other")) as server:
        listed: list[dict[str, Any]] = server.client.get("/v1/models").json()["data"]
        assert [entry["id"] for entry in listed] == ["small", "org/other"]
        assert server.client.get("/v1/models/org/other").json()["max_model_len"] == 256
        assert server.chat(model="org/other").json()["model"] == "org/other"
        assert server.chat().json()["model"] == "small"
        error = refused(server.chat(model="tiny"), "model", 404)
        said = "The model `tiny` does not exist here; this server has `small`, `org/other`."
        assert (error["code"], error["message"]) == ("model_not_found", said)
        refused(server.client.get("/v1/models/tiny"), "model", 404)
        server.next_is_right()


def test_a_model_tells_what_a_request_gets_for_what_it_leaves_out(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, defaults={"temperature": 0.7, "top_k": 20.0}) as server:
        [entry] = server.client.get("/v1/models").json()["data"]
        assert entry["default_sampling_params"] == {
            "temperature": 0.7,
            "top_p": 1.0,
            "top_k": 20,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
        }


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/tiny", "tiny"),
        ("./models/tiny.gguf", "tiny.gguf"),
        ("models/tiny.gguf", "tiny.gguf"),
        ("org/tiny", "org/tiny"),
        ("demo", "demo"),
    ],
)
def test_a_model_of_this_machines_disk_goes_by_its_last_name(tokenizer: Tokenizer, model: str, name: str) -> None:
    with live_server(tokenizer, model=model) as server:
        assert server.client.get("/v1/models").json()["data"][0]["id"] == name
        assert server.chat(model=model).json()["model"] == name
        assert server.chat(model=name).json()["model"] == name


def test_nothing_that_clients_send_becomes_a_label(server: LiveServer) -> None:
    headers = {"x-request-id": "evil-label", "user-agent": "evil-label"}
    for name in ("evil-label", "tiny"):
        server.client.post("/v1/completions", json={"prompt": "Hi", "model": name, "user": name}, headers=headers)
    server.client.get("/evil-label")
    text = server.client.get("/metrics", params={"name": "evil-label"}).text
    assert 'model_name="tiny"' in text
    assert "evil" not in text


def test_metrics_carry_vllms_names_under_a_prefix_of_ones_own(tokenizer: Tokenizer) -> None:
    with live_server(tokenizer, metrics_prefix="vllm") as server:
        server.chat()
        text = server.client.get("/metrics").text
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0' in text
    assert 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 1.0' in text
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="tiny"} 1.0' in text
    assert 'vllm:time_to_first_token_seconds_sum{engine="0",model_name="tiny"} 0.05' in text
    assert 'vllm:cache_config_info{block_size="16",cache_dtype="float32",engine="0",num_gpu_blocks="64"} 1.0' in text


def test_steps_are_recorded_only_where_the_server_was_started_for_it(server: LiveServer, tokenizer: Tokenizer) -> None:
    assert server.post("/start_profile").status_code == 404
    assert server.backend.profiles == 0
    with live_server(tokenizer, profile_steps=30, api_keys=("secret",)) as profiled:
        assert profiled.client.post("/start_profile").status_code == 401
        key = {"Authorization": "Bearer secret"}
        answer = profiled.client.post("/start_profile", headers=key)
        assert (answer.status_code, answer.json()) == (200, {"status": "started", "steps": 30})
        profiled.backend.state = "loading"
        refused(profiled.client.post("/start_profile", headers=key), None, 503)
        assert profiled.backend.profiles == 1
