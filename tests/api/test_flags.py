"""Flags of `serve` that must change how it runs, or what it says, and nothing else; over HTTP."""

from __future__ import annotations

import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.live_server import wait_until
from tests.api.whole_server import WholeServer, whole_server
from tests.builders import tiny_model_folder

PROMPT = "The quick brown fox jumps over the lazy dog. "
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
URGENCY = ("--max-num-seqs", "1", "--scheduling-policy", "priority")
EXACT = ("--dtype", "float32", "--kv-cache-memory", "8MiB")
POOL = 512 * 512  # bytes of 512 tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    eager = {"temperature": 1.0, "top_k": 1, "repetition_penalty": 1.4}
    return tiny_model_folder(tmp_path_factory.mktemp("model") / "tiny", generation=eager)


def answers(server: WholeServer, max_tokens: int = 120) -> list[str]:
    """Of twelve prompts asked at once."""
    prompts = [f"{i} {PROMPT * (i % 3 + 1)}" for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(server.complete, prompt, max_tokens=max_tokens, **GREEDY) for prompt in prompts]
        return [each.result()["choices"][0]["text"] for each in asked]


def test_small_pools_blocks_steps_and_two_workers_change_no_answer(folder: Path) -> None:
    with whole_server(folder, *EXACT) as plain:
        expected = answers(plain)
        assert plain.gauge("num_preemptions_total") == 0
    small = ("--block-size", "8", "--max-num-batched-tokens", "24", "--max-num-seqs", "8", "--max-model-len", "256")
    tight = ("--api-workers", "2", "--no-enable-prefix-caching", "--kv-cache-memory", str(POOL))
    with whole_server(folder, "--dtype", "float32", *small, *tight) as cramped:
        assert answers(cramped) == expected
        assert cramped.gauge("num_preemptions_total") > 0
        assert cramped.gauge("prefix_cache_queries_total") == 0
        lines = cramped.client.get("/metrics").text.splitlines()
        steps = [line for line in lines if line.startswith("firsttoken:iteration_tokens_total_bucket")]
        within = {line.split('le="')[1].split('"')[0]: float(line.rpartition(" ")[2]) for line in steps}
        assert within["32.0"] == within["+Inf"], "no step had more tokens than it may"
        wait_until(cramped.is_idle)


def test_the_limits_reach_every_worker(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    flags = ["--api-key-file", str(keys), "--header-timeout", "1", "--max-json-depth", "10", "--max-headers", "20"]
    flags += ["--allowed-origins", "https://chat.example", "--allowed-hosts", "llm.example", "--api-workers", "2"]
    with whole_server(folder, *EXACT, *flags) as server:

        def ask(key: str, **headers: str) -> int:
            given = headers | {"authorization": f"Bearer {key}", "connection": "close"}  # any worker may take it
            body = {"prompt": "Hi", "max_tokens": 1}
            return httpx.post(f"{server.url}/v1/completions", json=body, headers=given, timeout=20).status_code

        assert [ask("first") for _ in range(4)] == [200] * 4
        assert ask("second") == 401
        assert ask("first", host="evil.example") == 403
        assert ask("first", host="llm.example", origin="https://chat.example") == 200
        assert ask("first", **{f"x-{i}": "1" for i in range(30)}) == 431
        keys.write_text("second\n")
        wait_until(lambda: [ask("second") for _ in range(4)] == [200] * 4, 10)
        assert ask("first") == 401
        server.client.headers["authorization"] = "Bearer second"
        deep = b'{"prompt": "Hi", "user": ' + b"[" * 20 + b"]" * 20 + b"}"
        assert server.client.post("/v1/completions", content=deep).status_code == 400
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\n")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert server.client.get("/health").status_code == 200


def test_the_more_urgent_request_overtakes(folder: Path) -> None:
    ended: list[str] = []
    with whole_server(folder, *EXACT, *URGENCY) as server, ThreadPoolExecutor(3) as pool:

        def ask(name: str, priority: int, max_tokens: int) -> None:
            server.complete(PROMPT, max_tokens=max_tokens, priority=priority, **GREEDY)
            ended.append(name)

        running = pool.submit(ask, "running", 0, 950)
        wait_until(lambda: server.gauge("num_requests_running") == 1)
        patient = pool.submit(ask, "patient", 5, 8)
        wait_until(lambda: server.gauge("num_requests_waiting") == 1)
        urgent = pool.submit(ask, "urgent", -5, 8)
        for each in (running, patient, urgent):
            each.result()
        assert ended == ["urgent", "running", "patient"]
        assert server.gauge("num_preemptions_total") == 1


def test_the_models_own_sampling_holds_unless_it_is_turned_off(folder: Path) -> None:
    plain = {"max_tokens": 20, "ignore_eos": True}
    with whole_server(folder, *EXACT) as server:
        first = server.complete(PROMPT, **plain)["choices"][0]["text"]
        assert server.complete(PROMPT, **plain)["choices"][0]["text"] == first, "top_k 1 of the model's own"
        given = server.complete(PROMPT, repetition_penalty=1.0, **plain)["choices"][0]["text"]
        assert given != first
    with whole_server(folder, *EXACT, "--generation-config", "none") as server:
        drawn = {server.complete(PROMPT, **plain)["choices"][0]["text"] for _ in range(3)}
        assert len(drawn) == 3


def test_rope_scaling_and_random_weights_change_what_it_says(folder: Path, tmp_path: Path) -> None:
    greedy = {"max_tokens": 20, "repetition_penalty": 1.0, **GREEDY}
    with whole_server(folder, *EXACT) as server:
        own = server.complete(PROMPT, **greedy)["choices"][0]["text"]
    with whole_server(folder, *EXACT, "--rope-scaling", '{"rope_type": "linear", "factor": 4}') as server:
        assert server.complete(PROMPT, **greedy)["choices"][0]["text"] != own
        assert server.client.get("/v1/models").json()["data"][0]["max_model_len"] == 4096
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, bare / name)
    with whole_server(bare, *EXACT, "--load-format", "dummy") as server:
        assert server.complete(PROMPT, **greedy)["choices"][0]["text"] != own
        assert server.complete(PROMPT, **greedy)["usage"]["completion_tokens"] == 20
