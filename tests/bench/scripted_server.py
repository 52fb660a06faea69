"""A server whose true timings are known: it plays a script over a real socket and writes down when it sent each chunk.

By default it sleeps, and what it noted is the truth that a client's figures are compared with. With a `HandClock` no
time passes but what the script moves on, and the client reads the same clock: every figure is then exact, however
busy the machine is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from firsttoken.bench.common_words import COMMON_WORDS

_TURNS = 10_000  # of the event loop, in which a client must have read what was sent


class HandClock:
    """Seconds that move only when told to. Counts its readings, so that a server knows that its bytes were seen."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self.now


@dataclass(frozen=True)
class Step:
    """Waits, then sends bytes of the body in `pieces`, each in a packet of its own."""

    pieces: tuple[bytes, ...]
    wait: float = 0.0  # seconds before the first piece
    between: float = 0.0  # seconds between pieces
    text: str = ""  # what a client should count as content
    tokens: int = 1
    hang_up: bool = False  # close the connection instead of sending


@dataclass(frozen=True)
class Refusal:
    """An answer with a status and a JSON body."""

    status: int
    body: dict[str, Any]


@dataclass
class Written:
    """Content that went out, with the time just before its last byte was handed to the kernel."""

    at: float
    text: str
    tokens: int


@dataclass
class Seen:
    """One request and what was answered."""

    at: float  # when its last byte was read
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    written: list[Written] = field(default_factory=list)
    ended: float = 0.0


def event(data: dict[str, Any] | str, end: str = "\n\n") -> bytes:
    payload = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {payload}{end}".encode()


def chunk(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
    """One `chat.completion.chunk`."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **extra.pop("choice", {})}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice], **extra}


def say(text: str, wait: float = 0.0, tokens: int = 1, cuts: Sequence[int] = (), **extra: Any) -> Step:
    """A chunk with content; `cuts` are byte positions at which it is split over packets."""
    data = event(chunk({"content": text}, **extra))
    edges = [0, *cuts, len(data)]
    return Step(tuple(data[a:b] for a, b in itertools.pairwise(edges)), wait=wait, text=text, tokens=tokens)


def role(wait: float = 0.0) -> Step:
    return Step((event(chunk({"role": "assistant", "content": ""})),), wait=wait)


def empty(wait: float = 0.0) -> Step:
    return Step((event(chunk({"content": ""})),), wait=wait)


def raw(data: bytes, wait: float = 0.0) -> Step:
    return Step((data,), wait=wait)


def finish(reason: str = "length", wait: float = 0.0) -> Step:
    return Step((event(chunk({}, reason)),), wait=wait)


def usage(prompt: int, completion: int, cached: int | None = None, wait: float = 0.0) -> Step:
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return Step((event({"choices": [], "usage": counts}),), wait=wait)


def done(wait: float = 0.0) -> Step:
    return Step((event("[DONE]"),), wait=wait)


def hang_up(wait: float = 0.0) -> Step:
    return Step((), wait=wait, hang_up=True)


def answer(texts: Sequence[str], *, first: float = 0.0, each: float = 0.0, prompt: int = 5) -> list[Step]:
    """A whole plain answer of one token a chunk, as most servers send it."""
    waits = itertools.chain([first], itertools.repeat(each))
    said = [say(text, wait) for text, wait in zip(texts, waits, strict=False)]
    return [role(), *said, finish(), usage(prompt, len(texts), 0), done()]


Script = Callable[[Seen], Sequence[Step] | Refusal]


class ScriptedServer:
    """Answers streamed completions by a script; lists its model, and counts a word of a prompt as a token."""

    def __init__(self, script: Script, clock: HandClock | None = None, template: int = 4) -> None:
        """`template`: tokens that chat adds to a prompt."""
        self._script = script
        self._hand = clock
        self._template = template
        self._server: asyncio.Server | None = None
        self.seen: list[Seen] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def streamed(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.body.get("stream")]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # Cancelled at the end of a test: asyncio's streams would log that as an error.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._one(reader, writer):
                pass
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
        self._tasks.discard(task)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(self._now(), method, path, headers, json.loads(body) if body else {})
        self.seen.append(seen)
        if not seen.body.get("stream"):
            return self._answer_at_once(seen, writer)
        script = self._script(seen)
        if isinstance(script, Refusal):
            self._send_json(writer, script.status, script.body)
            return True
        before = self._readings()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await self._settle(before)
        return await self._play(script, seen, writer)

    async def _play(self, script: Sequence[Step], seen: Seen, writer: asyncio.StreamWriter) -> bool:
        for step in script:
            await self._wait(step.wait)
            if step.hang_up:
                writer.transport.abort()
                return False
            for number, piece in enumerate(step.pieces):
                await self._wait(step.between if number else 0.0)
                before, at = self._readings(), self._now()
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if step.text and number == len(step.pieces) - 1:
                    seen.written.append(Written(at, step.text, step.tokens))
                await self._settle(before)
        seen.ended = self._now()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _answer_at_once(self, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        match seen.path:
            case "/health":
                self._send_json(writer, 200, {})
            case "/v1/models":
                self._send_json(writer, 200, {"data": [{"id": "scripted", "owned_by": "vllm", "max_model_len": 8192}]})
            case "/version":
                self._send_json(writer, 200, {"version": "1.2.3"})
            case "/tokenize":
                ids = [COMMON_WORDS.index(word) + 100 for word in seen.body["prompt"].split()]
                self._send_json(writer, 200, {"tokens": ids, "count": len(ids)})
            case "/v1/completions" | "/v1/chat/completions":
                self._send_json(writer, 200, {"usage": {"prompt_tokens": self.prompt_tokens(seen)}})
            case _:
                self._send_json(writer, 404, {"error": {"message": "no such path"}})
        return True

    def prompt_tokens(self, seen: Seen) -> int:
        """A word or an id is a token; chat adds its template."""
        if "prompt" in seen.body:
            prompt = seen.body["prompt"]
            return len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        return self._template + sum(len(message["content"].split()) for message in seen.body["messages"])

    def _send_json(self, writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)

    def _now(self) -> float:
        return self._hand.now if self._hand is not None else time.monotonic()

    def _readings(self) -> int:
        return self._hand.readings if self._hand is not None else 0

    async def _wait(self, seconds: float) -> None:
        if self._hand is not None:
            self._hand.now += seconds
        elif seconds:
            await asyncio.sleep(seconds)

    async def _settle(self, before: int) -> None:
        """With a hand clock: until the client has looked at the clock, which it does when bytes come in."""
        for _ in range(_TURNS):
            if self._hand is None or self._hand.readings > before:
                return
            await asyncio.sleep(0)


@contextmanager
def in_thread(script_for: Callable[[ScriptedServer], Script]) -> Iterator[ScriptedServer]:
    """The server in an event loop of its own, for clients in other processes. `script_for` gets the server."""
    server = ScriptedServer(lambda seen: script_for(server)(seen))
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stopping = asyncio.Event()

    async def run() -> None:
        await server.start()
        started.set()
        await stopping.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert started.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


def serve_for_ever(port: int, script: Script, requests: int | None = None) -> None:
    """In a process of its own; with `requests` it dies with code 7 when that streamed request comes."""

    def counted(seen: Seen) -> Sequence[Step] | Refusal:
        if len(server.streamed) == requests:
            print("crashing", flush=True)
            os._exit(7)
        return script(seen)

    async def run() -> None:
        await server.start(port)
        await asyncio.Event().wait()

    server = ScriptedServer(counted)
    asyncio.run(run())
