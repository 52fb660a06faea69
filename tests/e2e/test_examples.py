"""The examples run as they stand, against a real server with the demo model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firsttoken.cli.local_server import free_port, local_server

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def api(demo_file: Path) -> Iterator[str]:
    with local_server(["demo"], port=free_port(0)) as server:
        yield f"{server.url}/v1"


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.demo
def test_openais_client_gets_a_streamed_and_a_whole_answer(api: str) -> None:
    printed = run(sys.executable, "openai_client.py", api)
    assert "gravity" in printed.lower()
    assert "completion_tokens" in printed


@pytest.mark.demo
def test_openais_client_gets_responses(api: str) -> None:
    printed = run(sys.executable, "openai_responses.py", api)
    assert "gravity" in printed.lower()
    assert "output_tokens" in printed


@pytest.mark.demo
def test_anthropics_client_gets_messages(api: str) -> None:
    printed = run(sys.executable, "anthropic_client.py", api)
    assert "gravity" in printed.lower()
    assert "output_tokens" in printed


@pytest.mark.demo
def test_a_model_calls_a_function_and_answers_from_its_result(demo_file: Path) -> None:
    flags = ["demo", "--chat-template", str(EXAMPLES / "chatml_tools.jinja")]
    with local_server(flags, port=free_port(0)) as server:
        printed = run(sys.executable, "tools.py", f"{server.url}/v1")
    assert 'get_temperature({"city": "Berlin"}) is {"celsius": 17}' in printed
    assert "17" in printed.splitlines()[2]


@pytest.mark.demo
def test_httpx_alone_streams_and_measures_ttft(api: str) -> None:
    assert "TTFT" in run(sys.executable, "stream_httpx.py", api)


@pytest.mark.demo
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_alone_gets_models_chat_and_completion(api: str) -> None:
    printed = run("sh", "curl.sh", api)
    assert '"object":"list"' in printed
    assert "data: [DONE]" in printed
    assert "Paris" in printed.split("--- completion")[1]


@pytest.mark.demo
def test_a_chat_with_a_running_server_takes_a_question_from_a_pipe(api: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "firsttoken", "chat", "--url", api, "--temperature", "0", "--max-tokens", "24"],
        input="What is gravity?\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "gravity" in done.stdout.lower()
    assert done.stderr.count("TTFT") == 1


@pytest.mark.demo
def test_the_offline_example_needs_no_server(demo_file: Path) -> None:
    assert "The capital of France is| Paris" in run(sys.executable, "offline.py")
