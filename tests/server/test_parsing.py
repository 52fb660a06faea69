"""Bodies as they are read, before any schema."""

from __future__ import annotations

import gc

from starlette.requests import Request
from starlette.types import Message

from firsttoken.server.limits import JSON_LIMITS, JsonLimits
from firsttoken.server.parsing import read_object


async def test_a_body_of_countless_lists_is_read_without_collections() -> None:
    """Each would look at all lists so far, and the event loop stands still meanwhile."""
    content = b'{"prompt": [' + b"[]," * 100_000 + b"[]]}"

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    collections: list[str] = []

    def count(phase: str, _: dict[str, int]) -> None:
        collections.append(phase)

    gc.callbacks.append(count)
    try:
        body = await read_object(
            Request({"type": "http", "method": "POST", "headers": [], JSON_LIMITS: JsonLimits(100, None)}, receive)
        )
    finally:
        gc.callbacks.remove(count)
    assert len(body.fields["prompt"]) == 100_001
    assert len(collections) < 10
    assert gc.isenabled()
