"""`firsttoken serve` as users run it: its own processes, a real model, a port that the system chose."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.api.live_server import chunks_of


@dataclass
class WholeServer:
    url: str
    client: httpx.Client
    pid: int

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def child(self, module: str) -> psutil.Process:
        """The one process of it that runs this module."""
        (found,) = [each for each in psutil.Process(self.pid).children() if module in each.cmdline()]
        return found

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        response = self.client.post(path, json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def chat(self, text: str, /, **body: Any) -> dict[str, Any]:
        return self.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **body)

    def complete(self, prompt: Any, /, **body: Any) -> dict[str, Any]:
        return self.post("/v1/completions", prompt=prompt, **body)

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        response = self.client.post(path, json=body | {"stream": True})
        assert response.status_code == 200, response.text
        return chunks_of(response.content)

    def gauge(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"firsttoken:{name}{{")]
        return float(value)

    def is_idle(self) -> bool:
        """Nothing runs, waits or holds blocks."""
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return not any(self.gauge(name) for name in names)

    def next_is_right(self) -> None:
        """A plain request gets its right answer, the same every time."""
        fields = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
        first, second = (self.complete("The first token", **fields) for _ in range(2))
        assert first["usage"]["completion_tokens"] == 4
        assert first["choices"] == second["choices"]


@contextlib.contextmanager
def whole_server(model: Path, *flags: str) -> Iterator[WholeServer]:
    """Waits until it is healthy; at the end SIGTERM, here or before, must end it well."""
    command = [sys.executable, "-m", "firsttoken", "serve", str(model), "--port", "0", *flags]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            url = _wait(process, output.fileno())
            with httpx.Client(base_url=url, timeout=60) as client:
                yield WholeServer(url, client, process.pid)
            process.send_signal(signal.SIGTERM)  # does nothing if it has ended
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], output: int, seconds: float = 120) -> str:
    """The server's root URL, once its summary is complete."""
    end = time.monotonic() + seconds
    path = Path(f"/proc/self/fd/{output}")
    while True:
        text = path.read_text()
        if "\n  ready in" in text:
            return "http" + text.split(" at http", 1)[1].split("/v1", 1)[0]
        assert process.poll() is None, text
        assert time.monotonic() < end, text
        time.sleep(0.05)
