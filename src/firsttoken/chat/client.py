"""An OpenAI-compatible chat server as a terminal sees it: one streamed answer at a time, with its timings."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from firsttoken.errors import FirstTokenError


class ChatError(FirstTokenError):
    """The server cannot be reached, refused the request, or broke off."""


@dataclass(slots=True)
class Answer:
    """One answer as it grows. Times are seconds on this side of the wire; token counts are the server's own."""

    text: str = ""
    ttft: float | None = None  # request sent to first text received
    e2e: float | None = None  # request sent to stream closed
    completion_tokens: int | None = None  # None where the server sent no usage (the answer was stopped)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Decode speed: tokens after the first over the time after the first. None below two tokens."""
        if self.ttft is None or self.e2e is None or not self.completion_tokens or self.completion_tokens < 2:
            return None
        return (self.completion_tokens - 1) / max(self.e2e - self.ttft, 1e-9)


@dataclass(frozen=True, slots=True)
class Options:
    """What goes with every request; None leaves the server's default."""

    temperature: float | None = None
    max_tokens: int | None = None

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.max_tokens is not None:
            body["max_completion_tokens"] = self.max_tokens
        return body


class ChatClient:
    """Speaks to one server. `url` is its root or its `/v1`; `http` can be given for other transports."""

    def __init__(self, url: str, *, api_key: str | None = None, http: httpx.Client | None = None) -> None:
        root = url.rstrip("/")
        self._base = root if root.endswith("/v1") else root + "/v1"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # A cold prefill of a long prompt may take minutes; only the connection has to be quick.
        self._http = http or httpx.Client(timeout=httpx.Timeout(10, read=None), trust_env=False)

    @property
    def url(self) -> str:
        return self._base

    def model(self) -> str:
        """The first model that the server names. Raises ChatError."""
        try:
            response = self._http.get(f"{self._base}/models", headers=self._headers, timeout=10)
            if response.status_code != 200:
                raise ChatError(_refusal(response.status_code, response.content))
            name = response.json()["data"][0]["id"]
        except httpx.HTTPError as error:
            raise ChatError(self._unreachable(error)) from error
        except (ValueError, LookupError, TypeError) as error:
            raise ChatError(f"{self._base} does not answer like an OpenAI-compatible server.") from error
        return str(name)

    def stream(
        self, model: str, messages: list[dict[str, str]], options: Options, answer: Answer
    ) -> Generator[str, None, None]:
        """Sends the whole history and yields the answer's text as it arrives, filling `answer` meanwhile.

        Leaving the loop early closes the connection, which stops the generation. Raises ChatError.
        """
        body = {
            **options.body(),
            "model": model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        start = time.perf_counter()
        try:
            with self._http.stream(
                "POST", f"{self._base}/chat/completions", json=body, headers=self._headers
            ) as response:
                if response.status_code != 200:
                    raise ChatError(_refusal(response.status_code, response.read()))
                for event in _events(response):
                    piece = _apply(event, answer)
                    if piece:
                        if answer.ttft is None:
                            answer.ttft = time.perf_counter() - start
                        answer.text += piece
                        yield piece
        except httpx.HTTPError as error:
            raise ChatError(self._unreachable(error)) from error
        finally:
            answer.e2e = time.perf_counter() - start

    def _unreachable(self, error: httpx.HTTPError) -> str:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return f"No server answers at {self._base}; start one with `firsttoken serve`, or give its --url."
        return f"The connection to {self._base} broke off ({type(error).__name__}); is the server still running?"


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream, up to [DONE]. Raises ChatError when it ends without that."""
    for line in response.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        try:
            event = json.loads(data)
        except ValueError as error:
            raise ChatError("The server's stream is not the JSON that OpenAI's API promises.") from error
        if "error" in event:
            raise ChatError(_message(event) or "The server broke off with an error.")
        yield event
    raise ChatError("The server closed the stream before the answer was done.")


def _apply(event: dict[str, Any], answer: Answer) -> str:
    """Takes usage and finish reason from one chunk and returns its text."""
    if usage := event.get("usage"):
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.completion_tokens = usage.get("completion_tokens")
        answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    piece = ""
    for choice in event.get("choices") or []:
        piece += (choice.get("delta") or {}).get("content") or ""
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    return piece


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return str(error.get("message") or "")
    return str(error or "")


def _refusal(status: int, content: bytes) -> str:
    """The server's own sentence where it gave one."""
    try:
        message = _message(json.loads(content))
    except ValueError:
        message = ""
    if status == 401:
        message = (message or "The server wants an API key.") + " Set OPENAI_API_KEY or give --api-key."
    return message or f"The server answered with HTTP status {status}."
