"""A rehearsal before the first request: what first calls cost (validators, templates, codecs) is paid while the engine
still loads."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from starlette.types import ASGIApp, Message, Scope

from firsttoken.config import ServerConfig
from firsttoken.server.app import create_app
from firsttoken.server.backend import BackendState, Sink
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput
from firsttoken.wire import EngineStats

_CONTEXT = 4096  # tokens; any model's template and a greeting fit


async def rehearse(app: ASGIApp, config: ServerConfig, tokenizer: Tokenizer) -> None:
    """Answers a streamed chat, a whole one and a probe in this process; nobody sees them, and no metric counts them.

    The chats go to an app of their own over an engine that only plays one. A model without a chat template refuses
    them, which is all there is to rehearse then.
    """
    stage = create_app(
        replace(config, api_keys=(), api_key_file=None, served_model_names=()), _Understudy(tokenizer), tokenizer
    )
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    for body in ({**chat, "stream": True}, chat):
        await _call(stage, "POST", "/v1/chat/completions", json.dumps(body).encode())
    await _call(app, "GET", "/version", b"")


async def _call(app: ASGIApp, method: str, path: str, body: bytes) -> None:
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "state": {},
    }
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        gone: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await gone  # never: the client stays until it is answered

    async def send(message: Message) -> None:
        pass

    await app(scope, receive, send)


class _Understudy:
    """A `Backend` that answers every request with the prompt's last token, twice."""

    state: BackendState = "ready"
    loading = ("ready", 1.0)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.info: EngineInfo | None = EngineInfo(
            model="rehearsal",
            architecture="",
            device="cpu",
            device_name="",
            dtype="float32",
            weights="",
            attention="",
            max_model_len=_CONTEXT,
            vocab_size=tokenizer.id_limit,
            token_id_limit=tokenizer.id_limit,
            bos_token_id=None,
            eos_token_ids=(),
            default_sampling={},
            block_size=16,
            num_blocks=1,
            max_num_seqs=1,
            kv_bytes_per_token=1,
            weight_bytes=1,
            phases={},
        )

    async def submit(self, request: GenerateRequest, sink: Sink) -> None:
        token = request.prompt_token_ids[-1]
        loop = asyncio.get_running_loop()
        first = SequenceOutput(request_id=request.request_id, index=0, token_ids=[token])
        for output in (first, replace(first, finish_reason="length")):
            loop.call_soon(sink.put, output)

    def stop(self, request_id: str, index: int) -> None: ...

    def abort(self, request_id: str) -> None: ...

    def start_profile(self) -> None: ...

    def drain(self) -> None: ...

    async def stats(self) -> EngineStats:
        return EngineStats()
