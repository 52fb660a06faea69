"""Random requests to a whole server, several at once: each is answered as the OpenAPI document says, or refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import jsonschema
from tests.api.document import Document, data_of
from tests.soak.random_bodies import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from tests.soak.random_requests import Asked, RandomRequests

# What a whole stream's last event says.
_ENDS = {
    CHAT: ("[DONE]",),
    COMPLETIONS: ("[DONE]",),
    RESPONSES: ('"type":"response.completed"', '"type":"response.incomplete"'),
    MESSAGES: ('"type":"message_stop"',),
}


@dataclass
class Found:
    """What was asked, and what was wrong with an answer."""

    statuses: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class Fuzzer:
    def __init__(self, url: str, seed: int, *, in_flight: int = 8) -> None:
        self._url = url
        self._in_flight = in_flight
        with self._client() as client:
            self._document = Document(client)
            end = client.post("/tokenize", json={"prompt": "<|im_end|>"}).json()["tokens"][0]
        self._requests = RandomRequests(seed, token_ids=end)  # the special tokens are the last ids of the tiny models

    def run(self, count: int) -> Found:
        """No connection is left open."""
        found = Found()
        asked = [self._requests.next() for _ in range(count)]
        with self._client() as client, ThreadPoolExecutor(self._in_flight) as pool:
            for status, fault in pool.map(partial(self._ask, client), asked):
                found.statuses[status] = found.statuses.get(status, 0) + 1
                if fault:
                    found.faults.append(fault)
        return found

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, timeout=60)

    def _ask(self, client: httpx.Client, asked: Asked) -> tuple[int, str]:
        """The status, and a sentence if something was wrong."""
        response = client.post(asked.path, content=asked.content, headers={"content-type": "application/json"})
        try:
            self._check(asked, response)
        except Exception as error:
            said = asked.content[:600].decode(errors="replace")
            return response.status_code, f"{asked.path} {said}\n  -> {response.status_code}: {error!r:.600}"
        return response.status_code, ""

    def _check(self, asked: Asked, response: httpx.Response) -> None:
        assert response.status_code < 500, response.text[:300]
        assert not asked.valid or response.status_code == 200, response.text[:300]
        self._document.holds_for(asked.path, response)
        if response.status_code != 200:
            return
        if response.headers["content-type"].startswith("text/event-stream"):
            last = data_of(response.text)[-1]
            assert any(end in last for end in _ENDS[asked.path]), f"the stream ends with {last[:200]}"
        elif asked.valid and asked.path in (CHAT, COMPLETIONS):
            _check_counts(asked.body, response.json())
            if asked.path == CHAT:
                _check_form(asked.body, response.json())


def _check_counts(body: dict[str, Any], answer: dict[str, Any]) -> None:
    """As many choices as were asked for, each within its length."""
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == list(range(prompts * body.get("n", 1)))
    most = max(body["max_tokens"], body.get("max_completion_tokens", 0))
    assert answer["usage"]["completion_tokens"] <= most * len(choices)
    assert json.dumps(answer).encode()  # no lone surrogate


def _check_form(body: dict[str, Any], answer: dict[str, Any]) -> None:
    """Answers that are whole keep to their form; those that must be calls are."""
    form = body.get("response_format", {})
    for choice in answer["choices"]:
        if choice["finish_reason"] == "length":
            continue
        if form:
            said = json.loads(choice["message"]["content"])
            jsonschema.validate(said, form["json_schema"]["schema"] if "json_schema" in form else {"type": "object"})
        if body.get("tool_choice") == "required":
            assert choice["message"]["tool_calls"], choice
