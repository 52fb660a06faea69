"""`serve` over real HTTP with a fake engine: dying engines, drains, full queues, and what users get wrong."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.builders import write_tokenizer
from tests.cli.fake_serve import Launched, kill, launch, until
from tests.engine.fake_engine import POISON


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def body(max_tokens: int, *, stream: bool = True) -> dict[str, Any]:
    return {"model": "fake", "prompt": [10], "max_tokens": max_tokens, "stream": stream, "ignore_eos": True}


class Stream:
    """A streamed completion, read in a thread of its own."""

    def __init__(self, url: str, max_tokens: int) -> None:
        self.events: list[str] = []
        self.status = 0
        self.ended_well = False
        self._url = url
        self._max_tokens = max_tokens
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: len(self.events) > 1 or not self._thread.is_alive())

    def _read(self) -> None:
        request = httpx.stream("POST", f"{self._url}/v1/completions", json=body(self._max_tokens), timeout=20)
        with request as response:
            self.status = response.status_code
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(line.removeprefix("data: "))
        self.ended_well = True

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def error(self) -> dict[str, Any] | None:
        """The error event, if there was one."""
        found = [json.loads(event) for event in self.events if event != "[DONE]"]
        errors = [event["error"] for event in found if "error" in event]
        return errors[0] if errors else None


@pytest.fixture
def server(tokenizer: str) -> Iterator[Launched]:
    with launch(http=True, tokenizer_path=tokenizer, api_workers=2, drain_seconds=15) as server:
        yield server


def test_an_engine_killed_in_mid_stream_ends_every_stream_with_an_error_event(server: Launched) -> None:
    url = server.wait_ready()
    streams = [Stream(url, 4000) for _ in range(4)]
    kill(server.children()["engine"][0])
    for stream in streams:
        stream.join()
        assert stream.ended_well
        assert stream.error is not None
        assert "died" in stream.error["message"]
    assert server.finish() == 1
    assert "Error: The engine process was killed (signal 9)" in server.err
    assert "Traceback" not in server.err


def test_clients_are_not_told_what_an_exception_in_the_engine_says(tokenizer: str) -> None:
    with launch(http=True, tokenizer_path=tokenizer) as server:
        url = server.wait_ready()
        response = httpx.post(f"{url}/v1/completions", json=body(3, stream=False) | {"prompt": [POISON]}, timeout=10)
        assert server.finish() == 1
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "The engine has failed; the server's log says why."
    assert "poisoned" in server.err


def test_with_restart_the_health_is_503_until_the_engine_is_back(tokenizer: str, tmp_path: Path) -> None:
    holder = tmp_path / "holder"
    with launch(http=True, model=f"held {holder}", tokenizer_path=tokenizer, engine_dead="restart") as server:
        url = server.wait_ready()
        stream = Stream(url, 4000)
        assert httpx.get(f"{url}/health").status_code == 200
        holder.touch()  # a new engine would be back before a busy machine has looked twice
        kill(server.children()["engine"][0])
        until(lambda: httpx.get(f"{url}/health").status_code == 503)
        stream.join()
        assert stream.error is not None
        assert httpx.get(f"{url}/health").status_code == 503
        holder.unlink()
        until(lambda: httpx.get(f"{url}/health").status_code == 200)
        assert httpx.post(f"{url}/v1/completions", json=body(3, stream=False)).status_code == 200


def test_sigterm_finishes_running_streams_and_refuses_new_ones(server: Launched) -> None:
    url = server.wait_ready()
    streams = [Stream(url, 150) for _ in range(3)]  # 20 ms a token
    server.signal(signal.SIGTERM)
    refusals: list[httpx.Response] = []

    def refused() -> bool:
        refusals.append(httpx.post(f"{url}/v1/completions", json=body(1, stream=False)))
        return refusals[-1].status_code == 503

    until(refused, 1)
    assert int(refusals[-1].headers["retry-after"]) > 0
    for stream in streams:
        stream.join()
        assert stream.events[-1] == "[DONE]"
        assert stream.error is None
    assert server.finish() == 0
    assert "Traceback" not in server.err


def test_a_drain_does_not_wait_for_a_request_that_never_comes_whole(tokenizer: str) -> None:
    with launch(http=True, tokenizer_path=tokenizer, drain_seconds=30) as server:
        url = server.wait_ready()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
            stream = Stream(url, 20)
            server.signal(signal.SIGTERM)
            assert server.finish(10) == 0
        stream.join()
        assert stream.error is None
    assert "Traceback" not in server.err


def test_a_client_that_never_reads_does_not_hold_up_the_end_or_fill_the_log(tokenizer: str) -> None:
    with launch(http=True, tokenizer_path=tokenizer, drain_seconds=0.2) as server:
        url = server.wait_ready()
        content = json.dumps(body(150) | {"n": 16, "prompt": [[10]] * 16}).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
            connection.sendall(head % len(content) + content)
            until(lambda: _running(url) == 256)
            until(lambda: _running(url) == 0, 30)
            server.signal(signal.SIGTERM)
            assert server.finish(12) == 0
    assert "Traceback" not in server.err


def test_the_drain_s_end_ends_streams_with_an_error_event_and_exit_code_0(tokenizer: str) -> None:
    with launch(http=True, tokenizer_path=tokenizer, drain_seconds=0.3) as server:
        stream = Stream(server.wait_ready(), 4000)
        server.signal(signal.SIGTERM)
        stream.join()
        assert stream.ended_well
        assert stream.error is not None
        assert server.finish() == 0


def test_requests_beyond_the_queue_are_refused_at_once_and_accepted_ones_finish(tokenizer: str) -> None:
    with launch(http=True, tokenizer_path=tokenizer, max_queue=3) as server:
        url = server.wait_ready()

        def ask(_: int) -> tuple[int, httpx.Headers]:
            response = httpx.post(f"{url}/v1/completions", json=body(150, stream=False), timeout=20)  # 3 s
            return response.status_code, response.headers

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(8)))
        codes = sorted(code for code, _ in answers)
        assert codes == [200] * 3 + [429] * 5
        assert all(int(headers["retry-after"]) > 0 for code, headers in answers if code == 429)


def test_a_client_that_leaves_frees_its_request(server: Launched) -> None:
    url = server.wait_ready()
    with httpx.stream("POST", f"{url}/v1/completions", json=body(4000), timeout=20) as response:
        lines = response.iter_lines()  # kept: its end would close the response
        next(lines)
        assert _running(url) == 1
    until(lambda: _running(url) == 0)


def test_a_worker_killed_in_mid_stream_frees_its_requests(tokenizer: str) -> None:
    with launch(http=True, tokenizer_path=tokenizer) as server:
        url = server.wait_ready()
        with httpx.stream("POST", f"{url}/v1/completions", json=body(4000), timeout=20) as response:
            lines = response.iter_lines()
            next(lines)
            kill(server.children()["worker"][0])
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        until(lambda: _running(url) == 0)


def test_idle_connections_beyond_the_usual_limit_of_files_keep_nobody_out(tokenizer: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        try:
            server = stack.enter_context(launch(http=True, tokenizer_path=tokenizer))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        url = server.wait_ready()
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))))
        assert httpx.post(f"{url}/v1/completions", json=body(3, stream=False), timeout=5).status_code == 200


def test_a_head_without_end_is_refused_and_the_connection_closed(server: Launched) -> None:
    host, port = server.wait_ready().removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.sendall(b"GET /health HTTP/1.1\r\n")
        answer = b""
        try:
            for i in range(200):
                client.sendall(b"X-%d: %s\r\n" % (i, b"a" * 1000))
            answer = client.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            pass  # closed while we were still sending
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert httpx.get(f"http://{host}:{port}/health").status_code == 200


def _running(url: str) -> float:
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith("firsttoken:num_requests_running"):
            return float(line.split()[-1])
    raise AssertionError("no gauge of running requests")


# --- the command line itself ---


def command(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firsttoken", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env=os.environ | (env or {}),
    )


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from firsttoken.cli.main import main\n"
        "try:\n main(['serve', '--help'])\nexcept SystemExit as end:\n assert end.code == 0\n"
        "print('HEAVY', sorted({'torch', 'numpy', 'pydantic', 'fastapi', 'rich', 'uvicorn'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert result.stdout.endswith("HEAVY []\n"), result.stderr
    for group in ("Model:", "Memory and batching:", "HTTP:", "Starting and stopping:"):
        assert group in result.stdout


def test_a_taken_port_is_one_sentence_with_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = command("demo", "--port", str(port))
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert line.startswith(f"Error: Port {port} on 127.0.0.1 is taken; add --port ")


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (("/no/such/model",), 1, ("Error: There is no file or folder /no/such/model.",)),
        (("demo", "--prot", "1"), 2, ("No such option", "--port")),
        (("demo", "--ui-port", "8081"), 2, ("add --ui",)),
        (("demo", "--max-model-len", "long"), 2, ("--max-model-len", "'long' is not a number of tokens")),
        (("demo", "--kv-cache-memory", "2 cups"), 2, ("--kv-cache-memory", "'2 cups' is not a size")),
        (("demo", "--rope-scaling", "yarn"), 2, ("--rope-scaling", "is not JSON")),
        (("demo", "--host", "no.such.host.invalid"), 2, ("no.such.host.invalid", "is not known")),
    ],
)
def test_a_mistake_is_told_plainly(arguments: tuple[str, ...], code: int, parts: tuple[str, ...]) -> None:
    result = command(*arguments, *(() if "--prot" in arguments else ("--port", "0")))
    assert result.returncode == code
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr
