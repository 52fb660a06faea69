"""Streams whose events have names, as the Responses and the Messages API send them."""

from __future__ import annotations

import json
from typing import Any

import httpx

Event = dict[str, Any]


def events_of(response: httpx.Response) -> list[Event]:
    """Every event in order; each is two lines by any reading, and its name is its type."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *blocks, last = response.text.split("\n\n")
    assert last == ""
    events = []
    for block in blocks:
        name, data = block.splitlines()
        event: Event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def types_of(events: list[Event]) -> list[str]:
    """The types, with neighbours of one type as one."""
    types = [event["type"] for event in events]
    return [kind for i, kind in enumerate(types) if i == 0 or types[i - 1] != kind]
