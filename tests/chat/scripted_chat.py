"""An OpenAI-compatible chat server that plays a script over real sockets and writes down what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HANG = object()  # sends nothing more until the client goes away
CUT = object()  # closes the connection in the middle
MODEL = {"id": "demo", "max_model_len": 4096, "default_sampling_params": {"temperature": 0.2, "top_k": 20}}


@dataclass
class Reply:
    """One answer of the chat endpoint. Pieces are texts, events as dicts, pauses in seconds, HANG or CUT."""

    pieces: list[Any] = field(default_factory=list)
    usage: tuple[int, int, int] | None = (7, 3, 2)  # prompt, completion, cached
    finish: str | None = "stop"
    done: bool = True


@dataclass
class Refusal:
    """A status with a JSON body."""

    status: int
    message: str = ""
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class ScriptedChat:
    """`replies` are played in turn, the last one for ever."""

    def __init__(self, *replies: Reply | Refusal, tokenize: bool = True) -> None:
        self.replies = list(replies)
        self.health: list[tuple[int, dict[str, Any]]] = [(200, {"status": "ready"})]
        self.models: Any = {"data": [MODEL]}
        self.tokenize = tokenize
        self.requests: list[dict[str, Any]] = []  # bodies of the chat endpoint
        self.paths: list[str] = []  # of every request
        self.keys: list[str | None] = []
        self.left = 0  # streams whose client went away before their end
        self.someone_left = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def histories(self) -> list[list[tuple[str, str]]]:
        return [[(m["role"], m["content"]) for m in request["messages"]] for request in self.requests]

    async def __aenter__(self) -> ScriptedChat:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await self._one(reader, writer)
                await writer.drain()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        path = head[0].split(" ")[1]
        self.paths.append(path)
        self.keys.append(headers.get("authorization"))
        match path:
            case "/health":
                _send(writer, *(self.health.pop(0) if len(self.health) > 1 else self.health[0]))
            case "/v1/models":
                _send(writer, 200, self.models)
            case "/tokenize" if self.tokenize:
                texts = [m["content"] for m in body.get("messages", [])] or [body["prompt"]]
                _send(writer, 200, {"count": sum(len(text.split()) for text in texts)})
            case "/v1/chat/completions":
                self.requests.append(body)
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                await self._play(reply, reader, writer)
            case _:
                _send(writer, 404, {"detail": "Not Found"})

    async def _play(self, reply: Reply | Refusal, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(reply, Refusal):
            error = {"error": {"message": reply.message, "code": reply.code}} if reply.message else {}
            _send(writer, reply.status, error, reply.headers)
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        gone = asyncio.create_task(reader.read())
        try:
            for piece in reply.pieces:
                if piece is CUT:
                    return
                if gone.done() or (piece is HANG and await gone is not None):
                    self.left += 1
                    self.someone_left.set()
                    return
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    _event(writer, piece if isinstance(piece, dict) else delta(piece))
                    await writer.drain()
        finally:
            gone.cancel()
        if reply.finish:
            _event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]})
        if reply.usage:
            prompt, completion, cached = reply.usage
            details = {"cached_tokens": cached}
            counts = {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
            _event(writer, {"choices": [], "usage": counts})
        if reply.done:
            _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], "usage": None}


def _event(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    _chunk(writer, f"data: {_json(event)}\n\n".encode())


def _json(event: dict[str, Any]) -> str:
    """Raw where it can be, escaped where a text has halves of characters."""
    text = json.dumps(event, ensure_ascii=False)
    return text if text == text.encode(errors="ignore").decode() else json.dumps(event)


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _send(writer: asyncio.StreamWriter, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    writer.write(f"HTTP/1.1 {status} X\r\n{more}content-length: {len(data)}\r\n\r\n".encode() + data)


@contextmanager
def in_thread(chat: ScriptedChat) -> Iterator[ScriptedChat]:
    """The server in an event loop of its own, for a client in another process or loop."""
    loop = asyncio.new_event_loop()
    started, stopping = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with chat:
            started.set()
            await stopping.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert started.wait(5)
    try:
        yield chat
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()
