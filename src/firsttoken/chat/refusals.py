"""What a response that is no answer means."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx

from firsttoken.chat.chat_errors import (
    ChatError,
    ContextTooLong,
    KeyRefused,
    NotAServer,
    Refused,
    ServerBusy,
    ServerLoading,
    ServerUnavailable,
    WaitingError,
)
from firsttoken.chat.event_stream import message_of

_TOO_LONG = re.compile(r"context (length|window|size)|maximum context|too many tokens", re.IGNORECASE)
_NUMBERS = re.compile(r"\d[\d,]*(?= tokens)")


def refusal(response: httpx.Response, url: str) -> ChatError:
    """The error that a status and its body stand for; the body has been read."""
    body = _json(response)
    message = message_of(body) or (str(body.get("message") or body.get("detail") or "") if body else "")
    status = response.status_code
    if status in (401, 403):
        return KeyRefused()
    if status == 429 and _code(body) != "insufficient_quota":
        return ServerBusy(retry_after(response))
    if status in (502, 503, 504):
        return ServerUnavailable(message or f"HTTP {status}.", retry_after(response))
    if status in (400, 413, 422) and (_code(body) == "context_length_exceeded" or _TOO_LONG.search(message)):
        numbers = sorted(int(number.replace(",", "")) for number in _NUMBERS.findall(message))
        return ContextTooLong(numbers[-1], numbers[0]) if len(numbers) > 1 else ContextTooLong()
    if not message and status == 404:
        return NotAServer(url)
    return Refused(message or f"The server answered with HTTP status {status}.")


def loading(response: httpx.Response) -> WaitingError:
    """What a health probe's 503 says: our server's phase and fraction, llama.cpp's sentence, or nothing."""
    body = _json(response)
    status = str(body.get("status") or message_of(body)).lower()
    if "load" in status:
        phase, fraction = body.get("phase"), body.get("fraction")
        return ServerLoading(str(phase or ""), float(fraction) if isinstance(fraction, int | float) else None)
    return ServerUnavailable(message_of(body) or (f"{status}." if status else "HTTP 503."), retry_after(response))


def retry_after(response: httpx.Response) -> float | None:
    """Seconds of the header; None where it is missing or a date."""
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        body = json.loads(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _code(body: dict[str, Any]) -> object:
    error = body.get("error")
    return error.get("code") if isinstance(error, dict) else None
