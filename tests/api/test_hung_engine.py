"""An engine process that lives and does nothing any more."""

from __future__ import annotations

from pathlib import Path

from tests.api.live_server import refused, wait_until
from tests.api.whole_server import whole_server
from tests.builders import tiny_model_folder


def test_an_engine_that_hangs_turns_health_to_503_until_it_goes_on(tmp_path: Path) -> None:
    flags = ("--dtype", "float32", "--max-model-len", "512", "--kv-cache-memory", "8MiB", "--engine-timeout", "1")
    with whole_server(tiny_model_folder(tmp_path / "tiny"), *flags) as server:
        engine = server.child("firsttoken.engine.process")
        assert server.client.get("/health").status_code == 200
        engine.suspend()
        try:
            wait_until(lambda: server.client.get("/health").json() == {"status": "hung"}, 10)
            assert server.client.get("/health").status_code == 503
            refusal = server.client.post("/v1/completions", json={"prompt": "Hi"})
            refused(refusal, None, 503)
            assert "retry-after" in refusal.headers
            assert "engine_state" in server.client.get("/metrics").text
        finally:
            engine.resume()
        wait_until(lambda: server.client.get("/health").status_code == 200, 10)
        server.next_is_right()
