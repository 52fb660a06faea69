"""`firsttoken doctor live` over HTTP, from the command line to the exit code."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from tests.doctor.scripted_metrics import Scripted

from firsttoken.cli.doctor_live import live

CARD = {
    "id": "qwen",
    "owned_by": "firsttoken",
    "device": "cuda:0",
    "weight_bytes": 8.04e9,
    "kv_bytes_per_token": 147456,
}


@pytest.fixture
def url() -> Iterator[str]:
    """A firsttoken on an H200 that decodes one stream."""
    begun = time.monotonic()
    load = Scripted(engine="firsttoken", step_s=0.00225)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            texts = {
                "/v1/models": json.dumps({"data": [CARD]}),
                "/version": '{"version": "1"}',
                "/metrics": load.text(time.monotonic() - begun),
            }
            text = texts.get(self.path)
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def run(*args: str) -> str:
    done = CliRunner().invoke(live, ["--seconds", "0.3", "--interval", "0.1", *args], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_one_look_prints_figures_verdict_change_and_predicted_gain(url: str) -> None:
    printed = " ".join(run("--url", url, "--once", "--gpu", "h200").split())
    assert "qwen at" in printed
    assert "memory-bound" in printed
    assert "--quantization fp8" in printed
    assert "times the tok/s, by the roofline" in printed


def test_json_holds_the_verdict_and_its_figures(url: str) -> None:
    told = json.loads(run("--url", url, "--json", "--memory-gb-s", "4410", "--product-tflop-s", "791"))
    assert (told["model"], told["engine"], told["verdict"]) == ("qwen", "firsttoken", "memory-bound")
    assert told["figures"]["memory_share"] == pytest.approx(0.82, abs=0.2)  # this host's clock and the server's differ
    assert told["predicted_gain"] > 1
