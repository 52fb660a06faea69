"""Errors as OpenAI's error objects. The only place that knows which HTTP status an error has."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from firsttoken.errors import FirstTokenError, InvalidRequest, QueueFull, RequestError, Unavailable
from firsttoken.server.answers import ClientGone
from firsttoken.server.request_id import REQUEST_ID

_PLAIN = {  # HTTP errors of the framework itself: (sentence, code)
    400: ("The request cannot be read.", None),
    404: ("There is nothing at this URL; the API starts at /v1.", "unknown_url"),
    405: ("This URL does not take that HTTP method.", "method_not_supported"),
}
FAILED = "The server failed on this request; its log says why."  # of what is no client's to know
_RETRY_AFTER = 5.0  # seconds, where nobody knows better
_MAX_NAME = 512  # characters of a name that are said back


class ModelNotFound(RequestError):
    """HTTP 404."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        """`names`: the models that there are."""
        there = ", ".join(f"`{other}`" for other in names)
        super().__init__(
            f"The model `{name[:_MAX_NAME]}` does not exist here; this server has {there}.",
            param="model",
            code="model_not_found",
        )


def wrong_value(field: str, sentence: str) -> InvalidRequest:
    """`sentence` says what is wrong with the field's value, without a full stop."""
    return InvalidRequest(f"Invalid '{field}': {sentence}.", param=field, code="invalid_value")


class BodyTooLarge(RequestError):
    """HTTP 413."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The request body is larger than the {limit} bytes that this server takes.", code="request_too_large"
        )


class EngineFault(RequestError):
    """HTTP 500: the engine gave up on this one request."""


def status_of(error: RequestError) -> int:
    match error:
        case ModelNotFound():
            return 404
        case BodyTooLarge():
            return 413
        case InvalidRequest():
            return 400
        case QueueFull():
            return 429
        case Unavailable():
            return 503
        case _:
            return 500


def error_object(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """OpenAI's form: {"error": {"message", "type", "param", "code"}}."""
    if status == 429:
        kind = "rate_limit_error"
    elif status >= 500:
        kind = "server_error"
    else:
        kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    body = msgspec.json.encode(error_object(status, message, param=param, code=code))
    return Response(body, status, headers, media_type="application/json")


def response_to(error: RequestError) -> Response:
    headers = {}
    if isinstance(error, QueueFull | Unavailable):
        wait = _RETRY_AFTER if error.retry_after is None else error.retry_after
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    return error_response(status_of(error), error.message, param=error.param, code=error.code, headers=headers)


async def _on_request_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return response_to(error)


async def _on_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message, code = _PLAIN.get(error.status_code, ("The request cannot be served.", None))
    headers = dict(error.headers) if error.headers else None
    return error_response(error.status_code, message, code=code, headers=headers)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    """The client went away while it sent its request: nobody's fault to log, and nobody to answer."""
    return ClientGone()


async def _on_any_error(request: Request, error: Exception) -> Response:
    """Its text may name files or addresses, so it goes to the log (the server writes it) and never to a client.

    What nobody expected is answered outside of all middleware, and uvicorn closes the connection after it.
    """
    headers = {}
    if not isinstance(error, FirstTokenError):
        headers = {"Connection": "close", "X-Request-Id": request.scope[REQUEST_ID].decode()}
    return error_response(500, FAILED, code="internal_error", headers=headers)


def install(app: FastAPI) -> None:
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        RequestError: _on_request_error,
        FirstTokenError: _on_any_error,
        HTTPException: _on_http_exception,
        ClientDisconnect: _on_disconnect,
        Exception: _on_any_error,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
