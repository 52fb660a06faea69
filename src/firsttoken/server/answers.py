"""Small answers that several routes give."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


def answer(body: bytes, headers: dict[str, str]) -> Response:
    return Response(body, headers=headers, media_type="application/json")


def truncation_header(dropped: int) -> dict[str, str]:
    """A cut prompt is never a secret."""
    return {"X-Firsttoken-Truncated-Tokens": str(dropped)} if dropped else {}


class ClientGone(Response):
    """Nobody is there to be answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        return
