"""An OpenAI-compatible server as a chat sees it. The page and the terminal both talk through this."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import httpx

from firsttoken.chat.answer import Answer
from firsttoken.chat.chat_errors import AnswerCut, ChatError, NotAServer, ServerDown, ServerLoading, WaitingError
from firsttoken.chat.event_stream import Piece, events, take
from firsttoken.chat.loopback import is_loopback
from firsttoken.chat.patience import Patience
from firsttoken.chat.refusals import loading, refusal
from firsttoken.chat.settings import Model, Settings

Message = dict[str, str]
"""{"role": ..., "content": ...}"""
OnWait = Callable[[WaitingError, float], None]
"""Told before each pause: why, and its seconds."""

_QUICK = 10.0  # seconds for everything but an answer, whose prefill may take minutes


class ChatServer:
    """Speaks to one server. Everything raises ChatError and nothing else of the network's."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        http: httpx.AsyncClient | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`url` is its root or its `/v1`; `http` and `sleep` can be given for other transports and clocks."""
        self.root = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = http or _http_client(self.root)
        self._patience = patience or Patience()
        self._sleep = sleep
        self._counts_tokens = True

    @property
    def url(self) -> str:
        """What OpenAI's clients call the base URL."""
        return f"{self.root}/v1"

    async def close(self) -> None:
        await self._http.aclose()

    async def state(self) -> WaitingError | None:
        """None when it answers; else why not, with the loading's phase and fraction where the server tells them."""
        try:
            response = await self._http.get(f"{self.root}/health", timeout=_QUICK)
        except httpx.TimeoutException:
            return ServerLoading()  # somebody listens, and is not yet up
        except (httpx.HTTPError, httpx.InvalidURL):
            return ServerDown(self.url)
        return loading(response) if response.status_code == 503 else None

    async def models(self, on_wait: OnWait | None = None, patience: Patience | None = None) -> list[Model]:
        """What it serves; at least one. Waits for a server that is loading, telling `on_wait`, with `patience` of its
        own where it is given."""

        async def ask() -> list[Model]:
            response = await self._get("/v1/models")
            try:
                entries = response.json()["data"]
                models = [Model.of(entry) for entry in entries]
            except (ValueError, LookupError, TypeError, AttributeError):
                raise NotAServer(self.url) from None
            if not models:
                raise NotAServer(self.url)
            return models

        return await (patience or self._patience).keep_trying(ask, on_wait, self._sleep)

    async def count_tokens(self, model: str, messages: Sequence[Message]) -> int | None:
        """Tokens of these messages as the model's chat template renders them; None where the server cannot tell."""
        return await self._count({"model": model, "messages": list(messages)})

    async def count_text(self, model: str, text: str) -> int | None:
        """Tokens of a text alone; None where the server cannot tell."""
        return await self._count({"model": model, "prompt": text, "add_special_tokens": False})

    async def stream(
        self,
        model: str,
        messages: Sequence[Message],
        settings: Settings,
        answer: Answer,
        on_wait: OnWait | None = None,
    ) -> AsyncGenerator[Piece, None]:
        """Sends the whole history and yields the answer as it arrives, filling `answer` meanwhile.

        Closing the generator closes the connection, which stops the generation. Until the first piece a refusal that
        may pass is waited out; after it nothing is asked twice: AnswerCut ends a stream that breaks.
        """
        body = {
            **settings.body(),
            "model": model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        start = 0.0

        async def ask() -> httpx.Response:
            nonlocal start
            start = time.perf_counter()
            return await self._open(body)

        response = await self._patience.keep_trying(ask, on_wait, self._sleep)
        try:
            async for event in events(response.aiter_raw()):
                for piece in take(event, answer):
                    if answer.ttft is None:
                        answer.ttft = time.perf_counter() - start
                    yield piece
            if answer.finish_reason is None:
                raise AnswerCut
        except httpx.HTTPError:
            raise AnswerCut from None
        finally:
            answer.e2e = time.perf_counter() - start
            await response.aclose()

    async def _open(self, body: dict[str, Any]) -> httpx.Response:
        """The response of a stream that has begun well."""
        headers = self._headers | {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        try:
            request = self._http.build_request("POST", f"{self.url}/chat/completions", json=body, headers=headers)
            response = await self._http.send(request, stream=True)
            if response.status_code == 200:
                return response
            try:
                await response.aread()
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL):
            raise ServerDown(self.url) from None
        raise await self._refused(response)

    async def _get(self, path: str) -> httpx.Response:
        try:
            response = await self._http.get(self.root + path, headers=self._headers, timeout=_QUICK)
        except httpx.TimeoutException:
            raise ServerLoading() from None
        except (httpx.HTTPError, httpx.InvalidURL):
            raise ServerDown(self.url) from None
        if response.status_code != 200:
            raise await self._refused(response)
        return response

    async def _refused(self, response: httpx.Response) -> ChatError:
        """A 503 says little; `/health` tells a server that loads from one that is going away."""
        if response.status_code == 503 and isinstance(state := await self.state(), ServerLoading):
            return state
        return refusal(response, self.url)

    async def _count(self, body: dict[str, Any]) -> int | None:
        if not self._counts_tokens:
            return None
        try:
            response = await self._http.post(f"{self.root}/tokenize", json=body, headers=self._headers, timeout=_QUICK)
            if response.status_code in (404, 405, 501):
                self._counts_tokens = False  # it never will
            count = response.json().get("count") if response.status_code == 200 else None
        except (httpx.HTTPError, ValueError, AttributeError):
            return None
        return count if isinstance(count, int) else None


def _http_client(root: str) -> httpx.AsyncClient:
    """A proxy of the environment stands between us and the world, never between us and this machine."""
    try:
        local = is_loopback(httpx.URL(root).host)
    except httpx.InvalidURL:
        local = False
    return httpx.AsyncClient(timeout=httpx.Timeout(_QUICK, read=None), trust_env=not local)
