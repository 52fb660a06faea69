"""The API on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from tests.api.fake_backend import FakeBackend, Script, engine_info

from firsttoken.config import ServerConfig
from firsttoken.server.app import create_app
from firsttoken.server.http_protocol import BoundedHttpProtocol
from firsttoken.tokenizer import Tokenizer

HELLO = "Hello there."


@dataclass
class Vocabulary:
    """Token ids for exact bytes."""

    tokenizer: Tokenizer
    _ids: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        special = self.tokenizer.special_ids
        self._ids = {self.tokenizer.token_bytes(i): i for i in range(self.tokenizer.id_limit) if i not in special}

    def of(self, text: str) -> list[int]:
        """One token a byte, so that every character and stop string is cut in the middle."""
        return [self._ids[bytes([byte])] for byte in text.encode()]

    def bytes(self, data: bytes) -> list[int]:
        return [self._ids[bytes([byte])] for byte in data]

    @property
    def end(self) -> int:
        return self.special("<|im_end|>")

    def special(self, text: str) -> int:
        (token_id,) = self.tokenizer.encode(text, add_special_tokens=False)
        return token_id


@dataclass
class LiveServer:
    """A running API and the engine behind it."""

    backend: FakeBackend
    vocabulary: Vocabulary
    client: httpx.Client
    port: int
    loop: asyncio.AbstractEventLoop
    http: uvicorn.Server

    @property
    def connections(self) -> int:
        return len(self.http.server_state.connections)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """As new, for the next test."""
        wait_until(lambda: not self.backend.running)
        self.backend.reset()
        self.says(HELLO)

    def call(self, function: Callable[[], object]) -> None:
        """Runs in the server's event loop, where the backend lives."""
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(5)

    def says(self, text: str) -> None:
        """Every answer from now on."""
        self.backend.script = lambda _request, _index: self.vocabulary.of(text)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def chat(self, text: str = "Hi", /, **body: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", **{"messages": [{"role": "user", "content": text}], **body})

    def complete(self, prompt: Any = "Hi", /, **body: Any) -> httpx.Response:
        return self.post("/v1/completions", prompt=prompt, **body)

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """Every chunk of a stream that ended with [DONE]."""
        response = self.post(path, stream=True, **body)
        assert response.status_code == 200, response.text
        return chunks_of(response.content)

    def chat_stream(self, **body: Any) -> list[dict[str, Any]]:
        return self.stream("/v1/chat/completions", **{"messages": [{"role": "user", "content": "Hi"}], **body})

    def next_is_right(self) -> None:
        """A plain request right after still gets its right answer, and nothing of earlier ones is left."""
        script, self.backend.script = self.backend.script, lambda _request, _index: self.vocabulary.of(HELLO)
        response = self.chat()
        self.backend.script = script
        assert response.status_code == 200, response.text
        assert response.json()["choices"][0]["message"]["content"] == HELLO
        wait_until(lambda: not self.backend.running)


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: {") for event in events[:-2])
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def post_unread(
    port: int, body: dict[str, Any], receive_buffer: int | None = None, *, path: str | None = None, headers: str = ""
) -> socket.socket:
    """A request (a chat or a completion, unless `path` says otherwise) over a bare socket, its answer not read."""
    path = path or ("/v1/chat/completions" if "messages" in body else "/v1/completions")
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", port))
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    return connection


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def refused(response: httpx.Response, param: str | None, status: int = 400) -> dict[str, Any]:
    """The error of a request that was refused for that field."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert error["message"].endswith(".")
    assert "\n" not in error["message"]
    return error


@contextlib.contextmanager
def live_server(
    tokenizer: Tokenizer,
    *,
    script: Script | None = None,
    max_model_len: int = 256,
    bos: int | None = None,
    model: str = "tiny",
    defaults: dict[str, float] | None = None,
    send_buffer: int | None = None,
    http: type[BoundedHttpProtocol] = BoundedHttpProtocol,
    **config: Any,
) -> Iterator[LiveServer]:
    """`config` goes to ServerConfig; `send_buffer` is what the kernel holds of an answer, in bytes."""
    vocabulary = Vocabulary(tokenizer)
    info = engine_info(
        token_id_limit=tokenizer.id_limit,
        eos=vocabulary.end,
        max_model_len=max_model_len,
        bos=bos,
        model=model,
        **(defaults or {}),
    )
    backend = FakeBackend(info, script or (lambda _request, _index: vocabulary.of(HELLO)))
    app = create_app(ServerConfig(tokenizer_path="unused", **config), backend, tokenizer)
    loops: list[asyncio.AbstractEventLoop] = []

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loops.append(asyncio.get_running_loop())
            await super().startup(sockets)

    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer is not None:  # accepted connections inherit it
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = Server(uvicorn.Config(app, http=http, log_level="error", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_until(lambda: server.started)
        port = listener.getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield LiveServer(backend, vocabulary, client, port, loops[0], server)
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
    assert not thread.is_alive()
