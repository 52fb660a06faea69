"""A server's OpenAPI document, to which its answers are held."""

from __future__ import annotations

import json
from typing import Any

import httpx
from jsonschema import Draft202012Validator


class Document:
    """The server's document, and whether answers keep to it."""

    def __init__(self, client: httpx.Client) -> None:
        self.whole: dict[str, Any] = client.get("/openapi.json").json()
        self._validators: dict[str, Draft202012Validator] = {}

    def resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in node:
            at: Any = self.whole
            for step in node["$ref"].removeprefix("#/").split("/"):
                at = at[step]
            node = at
        return node

    def check(self, value: object, schema: dict[str, Any]) -> None:
        key = json.dumps(schema)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator({**schema, "components": self.whole["components"]})
        self._validators[key].validate(value)

    def holds_for(self, path: str, response: httpx.Response) -> None:
        """The status, the content type and the body are among those that the path's operation names."""
        (operation,) = self.whole["paths"][path].values()
        answer = self.resolve(operation["responses"][str(response.status_code)])
        kind = response.headers["content-type"].partition(";")[0]
        schema = answer["content"][kind]["schema"]
        if kind == "text/event-stream":
            events = data_of(response.text)
            assert events
            for event in events:
                if event != "[DONE]":
                    self.check(json.loads(event), schema["properties"]["data"]["contentSchema"])
        elif kind == "application/json":
            self.check(response.json(), schema)
        for name in answer.get("headers", {}):
            assert name.lower() in response.headers


def data_of(stream: str) -> list[str]:
    """What the events of a whole stream carry."""
    return [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data: ")]
