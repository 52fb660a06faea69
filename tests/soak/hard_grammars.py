"""Grammars made to hurt, beside plain streams: each is refused or followed soon, and no stream waits for it."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import httpx
from tests.api.whole_server import WholeServer

_STREAMS = 4


def grammars(random: Random) -> list[dict[str, Any]]:
    """New ones each time, so that none is remembered."""
    word = f"w{random.randrange(10**9)}"
    deep: dict[str, Any] = {"type": "integer", "title": word}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    return [
        {"regex": f"[{word}"},
        {"regex": f"({word}|{'a?' * 300}{'a' * 300})*"},
        {"regex": f"{word}(.{{0,900}}){{0,900}}x"},
        {"regex": "|".join(f"{word}{i}[a-z]*" for i in range(4000))},
        {"json": {"$ref": "#", "title": word}},
        {"json": {"type": "integer", "minimum": 5, "maximum": 3, "title": word}},
        {"json": {"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"const": word}]}}, "$ref": "#/$defs/n"}},
        {"json": {"enum": [f"{word} {i}" for i in range(60_000)]}},
        {"json": {"allOf": [{"properties": {f"{word}{i}": {"type": "integer"}}} for i in range(400)]}},
        {"json": {"type": "string", "pattern": f"^({word}|b+)+$", "maxLength": 100_000}},
        {"json": deep},
        {"choice": [f"{word}{i}" for i in range(1000)]},
        {"grammar": "root ::= " + " | ".join(f'"{word}" a{i}' for i in range(500)) + '\na0 ::= "x" a0'},
        {"grammar": f'root ::= root root | "{word}" | ""'},
    ]


class Stream:
    """A plain streamed answer; `gap` is the longest time between two of its events."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.gap = 0.0

    def read(self) -> str:
        body = {"prompt": "The quick", "max_tokens": 600, "temperature": 0, "ignore_eos": True, "stream": True}
        text, last = "", 0.0
        with httpx.stream("POST", f"{self._url}/v1/completions", json=body, timeout=60) as response:
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                now = time.monotonic()
                self.gap = max(self.gap, now - last) if last else 0.0
                last = now
                text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
        return text


def run(server: WholeServer, seed: int, rounds: int) -> tuple[dict[int, int], float, float]:
    """Statuses of the grammars, seconds that the slowest took, and the longest gap in a plain stream.

    Asserts that none is a server error and that the plain streams say what they say alone.
    """
    expected = Stream(server.url).read()
    random = Random(seed)
    statuses: dict[int, int] = {}
    slowest = gap = 0.0

    def ask(form: dict[str, Any]) -> tuple[int, float, str]:
        body = {"prompt": "Hi", "max_tokens": 20, "structured_outputs": form}
        began = time.monotonic()
        response = httpx.post(f"{server.url}/v1/completions", content=json.dumps(body), timeout=60)
        return response.status_code, time.monotonic() - began, f"{str(form)[:200]}: {response.text[:300]}"

    with ThreadPoolExecutor(_STREAMS) as pool, ThreadPoolExecutor(4) as askers:
        for _ in range(rounds):
            streams = [Stream(server.url) for _ in range(_STREAMS)]
            reading = [pool.submit(stream.read) for stream in streams]
            for status, seconds, told in askers.map(ask, grammars(random)):
                assert status in (200, 400, 429), told
                statuses[status] = statuses.get(status, 0) + 1
                slowest = max(slowest, seconds)
            assert all(each.result() == expected for each in reading)
            gap = max(gap, *(stream.gap for stream in streams))
    return statuses, slowest, gap
