"""Streams an answer with nothing but httpx, and measures TTFT as a client sees it.

python examples/stream_httpx.py [URL of the API, by default http://127.0.0.1:8000/v1]
"""

from __future__ import annotations

import json
import sys
import time

import httpx


def main(base_url: str) -> None:
    body = {
        "model": httpx.get(f"{base_url}/models").json()["data"][0]["id"],
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "max_completion_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start = time.perf_counter()
    first: float | None = None
    usage: dict[str, object] = {}
    with httpx.stream("POST", f"{base_url}/chat/completions", json=body, timeout=None) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                if text := choice["delta"].get("content"):
                    first = first or time.perf_counter() - start
                    print(text, end="", flush=True)
    print(f"\nTTFT {(first or 0) * 1000:.0f} ms, {usage.get('completion_tokens')} tokens")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
