"""An OpenAI-compatible server that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

CONTEXT = 4096


@dataclass
class Script:
    """One answer: its pieces, and the seconds before each."""

    pieces: list[str]
    pause: float = 0.0
    first: float = 0.0
    finish: str = "stop"
    breaks_after: int | None = None  # pieces, after which the connection ends without a word
    thought: str = ""


@dataclass
class Asked:
    body: dict[str, Any]
    sent: int = 0  # pieces
    came_at: float = field(default_factory=time.perf_counter)
    first_at: float = 0.0  # when the first piece went out
    aborted: bool = False

    @property
    def messages(self) -> list[dict[str, str]]:
        return list(self.body["messages"])

    @property
    def question(self) -> str:
        return self.messages[-1]["content"]


def echo(asked: Asked) -> Script:
    return Script(["You said: ", *(word + " " for word in asked.question.split())])


@dataclass
class ScriptedModel:
    """Its fields may be changed while it runs."""

    reply: Callable[[Asked], Script] = echo
    state: str = "ready"  # "loading"
    fraction: float = 0.0
    busy: int = 0  # requests that are still refused with 429
    models: list[str] = field(default_factory=lambda: ["scripted", "other"])
    asked: list[Asked] = field(default_factory=list)

    def reset(self) -> None:
        for known in fields(self):
            default = known.default_factory() if known.default_factory is not MISSING else known.default
            setattr(self, known.name, default)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.list_models),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def health(self, _: Request) -> Response:
        if self.state == "loading":
            return JSONResponse({"status": "loading", "phase": "weights", "fraction": self.fraction}, 503)
        return JSONResponse({"status": "ready"})

    async def list_models(self, _: Request) -> Response:
        if self.state == "loading":
            return _error(503, "The model is loading.")
        recommended = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
        entries = [
            {"id": name, "max_model_len": CONTEXT, "default_sampling_params": recommended} for name in self.models
        ]
        return JSONResponse({"object": "list", "data": entries})

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        return JSONResponse({"count": count(body["messages"] if "messages" in body else body["prompt"])})

    async def chat(self, request: Request) -> Response:
        if self.state == "loading":
            return _error(503, "The model is loading.")
        if self.busy:
            self.busy -= 1
            return _error(429, "The queue is full.", {"Retry-After": "1"})
        asked = Asked(await request.json())
        if asked.body["model"] not in self.models:
            return _error(404, f"The model `{asked.body['model']}` does not exist here.", code="model_not_found")
        self.asked.append(asked)
        tokens = count(asked.messages)
        if tokens > CONTEXT:
            message = f"This model's maximum context length is {CONTEXT} tokens, but {tokens} tokens were given."
            return _error(400, message, code="context_length_exceeded")
        return StreamingResponse(self._stream(asked, tokens), media_type="text/event-stream")

    async def _stream(self, asked: Asked, prompt: int) -> AsyncIterator[bytes]:
        script = self.reply(asked)
        try:
            await asyncio.sleep(script.first)
            if script.thought:
                yield _event({"choices": [{"index": 0, "delta": {"reasoning_content": script.thought}}]})
            for number, piece in enumerate(script.pieces):
                if number == script.breaks_after:
                    raise ConnectionResetError
                asked.first_at = asked.first_at or time.perf_counter()
                yield _event({"choices": [{"index": 0, "delta": {"content": piece}}]})
                asked.sent += 1
                await asyncio.sleep(script.pause)
        except (asyncio.CancelledError, GeneratorExit):
            asked.aborted = True
            raise
        yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": script.finish}]})
        # The prefix cache holds what the request before this one sent.
        before = self.asked[-2].messages if len(self.asked) > 1 else []
        cached = count(before) if asked.messages[: len(before)] == before else 0
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": len(script.pieces),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        yield _event({"choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def count(messages: list[dict[str, str]] | str) -> int:
    """Tokens: words and characters of other scripts alike are one each for this model."""
    if isinstance(messages, str):
        return sum(1 + sum(not character.isascii() for character in word) for word in messages.split())
    return sum(count(message["content"]) + 3 for message in messages)


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n".encode()


def _error(status: int, message: str, headers: dict[str, str] | None = None, code: str | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, status, headers)


class RunningModel:
    """The scripted model on a port, which can go away and come back."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.port = free_port()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = uvicorn.Config(self.model.app(), port=self.port, log_level="critical", timeout_graceful_shutdown=1)
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: server.started)

    def stop(self) -> None:
        if self._server and self._thread:
            self._server.should_exit = True
            self._server.force_exit = True
            self._thread.join(10)
            self._server = None


@contextmanager
def scripted_model() -> Iterator[RunningModel]:
    running = RunningModel(ScriptedModel())
    try:
        yield running
    finally:
        running.stop()


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
