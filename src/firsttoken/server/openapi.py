"""The OpenAPI document. Bodies are read and answers written by hand, so each route says here what they are."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from firsttoken.server.schemas.answers import Error

_SCHEMAS = "#/components/schemas/"
_RESPONSES = "#/components/responses/"

_ERRORS = {
    "400": "A wrong value, named in `param`.",
    "401": "No key, or a wrong one.",
    "403": "The host name, or the web page's origin, is not one that the server serves.",
    "404": "No such model.",
    "413": "The body is too large.",
    "415": "The body is said to be something other than JSON.",
    "429": "The queue is full.",
    "431": "The headers are too large.",
    "500": "The server failed on this request; its log says why.",
    "503": "Loading, draining, too many connections, or the engine hangs or is gone.",
}
_RETRY = {"Retry-After": {"description": "Seconds after which to come back.", "schema": {"type": "integer"}}}

ANYWHERE = ("403", "431", "500")  # whatever is asked
KEYED = (*ANYWHERE, "401")
MODEL = (*KEYED, "404", "503")
BODY = (*MODEL, "400", "413", "415")
GENERATES = (*BODY, "429")


class Described:
    """What the routes said, for the document's components."""

    def __init__(self) -> None:
        self.bodies: list[type[BaseModel]] = []
        self._answers: list[type[BaseModel]] = []
        self._making = asyncio.Lock()
        self._json = b""

    def route(
        self,
        answer: type[BaseModel] | None,
        *bodies: type[BaseModel],
        events: type[BaseModel] | None = None,
        also: dict[str, type[BaseModel]] | None = None,
        errors: tuple[str, ...] = KEYED,
        error: type[BaseModel] = Error,
    ) -> dict[str, Any]:
        """`openapi_extra` of a route.

        `answer` is None for plain text; `events` are those of a stream, each the JSON of one `data:` line; `also` are
        answers of other statuses that are no error objects; `error` is the form of those that are.
        """
        self.bodies += bodies
        self._answers += [schema for schema in (answer, events, error, *(also or {}).values()) if schema is not None]
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
        if answer is not None:
            content = {"application/json": {"schema": _reference(answer)}}
        if events is not None:
            content["text/event-stream"] = {"schema": _event(events, error)}
        responses: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
        for status in sorted(errors):
            shared = {"$ref": f"{_RESPONSES}{status}"}
            responses[status] = shared if error is Error else _error(status, _ERRORS[status], error)
        for status, schema in (also or {}).items():
            form = {"application/json": {"schema": _reference(schema)}}
            responses[status] = {"description": "Not now.", "content": form}
        extra: dict[str, Any] = {"responses": responses}
        if bodies:
            forms = [_reference(body) for body in bodies]
            either = forms[0] if len(forms) == 1 else {"anyOf": forms}
            extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": either}}}
        return extra

    async def json(self, app: FastAPI) -> bytes:
        """The document's bytes, made once and in a thread: a fifth of a second in which no token would leave."""
        async with self._making:
            if not self._json:
                self._json = await asyncio.to_thread(lambda: msgspec.json.encode(self.document(app)))
            return self._json

    def document(self, app: FastAPI) -> dict[str, Any]:
        """The whole document; made anew at each call."""
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)  # FastAPI's own; no route here lets it check a value
        made = [*((body, "validation") for body in self.bodies), *((one, "serialization") for one in self._answers)]
        _, schemas = models_json_schema(made, ref_template=_SCHEMAS + "{model}")  # type: ignore[arg-type]  # a literal
        document["components"] = {
            "schemas": schemas["$defs"],
            "responses": {status: _error(status, sentence) for status, sentence in _ERRORS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        }
        return document


def _reference(schema: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _SCHEMAS + schema.__name__}


def _event(schema: type[BaseModel], error: type[BaseModel]) -> dict[str, Any]:
    """One event of a stream, as OpenAPI 3.2 has it."""
    said = {
        "type": "string",
        "description": "JSON; an error object where the stream cannot go on; `[DONE]` at the end.",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [_reference(schema), _reference(error)]},
    }
    return {"type": "object", "properties": {"data": said}, "required": ["data"]}


def _error(status: str, sentence: str, schema: type[BaseModel] = Error) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": sentence,
        "content": {"application/json": {"schema": _reference(schema)}},
    }
    return response | ({"headers": _RETRY} if status in ("429", "503") else {})
