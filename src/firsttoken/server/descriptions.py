"""What each route takes and answers, as the OpenAPI document has it.

Bodies are read and answers written by hand, so no route could tell. Serving needs nothing of this: a worker imports it
once somebody asks for the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from firsttoken.server.schemas import answers
from firsttoken.server.schemas.answers import Error
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.schemas.completions import CompletionRequest
from firsttoken.server.schemas.message_answers import MessageError, MessageEvent, MessageObject, TokenCountObject
from firsttoken.server.schemas.messages import CountTokensRequest, MessagesRequest
from firsttoken.server.schemas.response_answers import ResponseEvent, ResponseObject
from firsttoken.server.schemas.responses import ResponsesRequest
from firsttoken.server.schemas.tokenize import DetokenizeRequest, TokenizeChat, TokenizeText

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

_ANYWHERE = ("403", "431", "500")  # whatever is asked
_KEYED = (*_ANYWHERE, "401")
_MODEL = (*_KEYED, "404", "503")
_BODY = (*_MODEL, "400", "413", "415")
_GENERATES = (*_BODY, "429")


@dataclass(frozen=True, slots=True)
class Description:
    """`operation` belongs to the document's own; `bodies` and `answers` to its components."""

    operation: dict[str, Any]
    bodies: tuple[type[BaseModel], ...]
    answers: tuple[type[BaseModel], ...]


def _route(
    answer: type[BaseModel] | None,
    *bodies: type[BaseModel],
    events: type[BaseModel] | None = None,
    also: dict[str, type[BaseModel]] | None = None,
    errors: tuple[str, ...] = _KEYED,
    error: type[BaseModel] = Error,
) -> Description:
    """`answer` is None for plain text; `events` are those of a stream, each the JSON of one `data:` line; `also` are
    answers of other statuses that are no error objects; `error` is the form of those that are."""
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
    operation: dict[str, Any] = {"responses": responses}
    if bodies:
        forms = [_reference(body) for body in bodies]
        either = forms[0] if len(forms) == 1 else {"anyOf": forms}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": either}}}
    told = (answer, events, error, *(also or {}).values())
    return Description(operation, bodies, tuple(schema for schema in told if schema is not None))


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document; made anew at each call."""
    made = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path, operations in made["paths"].items():
        for operation in operations.values():
            operation.update(DESCRIPTIONS[path].operation)  # not merged: FastAPI tells of checks that no route makes
    bodies = [body for told in DESCRIPTIONS.values() for body in told.bodies]
    answered = [answer for told in DESCRIPTIONS.values() for answer in told.answers]
    schemas = [*((body, "validation") for body in bodies), *((one, "serialization") for one in answered)]
    _, definitions = models_json_schema(schemas, ref_template=_SCHEMAS + "{model}")  # type: ignore[arg-type]  # a literal
    made["components"] = {
        "schemas": definitions["$defs"],
        "responses": {status: _error(status, sentence) for status, sentence in _ERRORS.items()},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    }
    return made


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


DESCRIPTIONS = {
    "/health": _route(answers.Health, also={"503": answers.Health}, errors=_ANYWHERE),
    "/ready": _route(answers.Readiness, also={"503": answers.Readiness}, errors=_ANYWHERE),
    "/version": _route(answers.Version, errors=_ANYWHERE),
    "/metrics": _route(None, errors=_ANYWHERE),
    "/v1/models": _route(answers.ModelList, errors=_MODEL),
    "/v1/models/{name}": _route(answers.Model, errors=_MODEL),
    "/v1/chat/completions": _route(
        answers.ChatCompletion, ChatRequest, events=answers.ChatCompletionChunk, errors=_GENERATES
    ),
    "/v1/completions": _route(answers.Completion, CompletionRequest, events=answers.CompletionChunk, errors=_GENERATES),
    "/v1/responses": _route(ResponseObject, ResponsesRequest, events=ResponseEvent, errors=_GENERATES),
    "/v1/messages": _route(MessageObject, MessagesRequest, events=MessageEvent, errors=_GENERATES, error=MessageError),
    "/v1/messages/count_tokens": _route(TokenCountObject, CountTokensRequest, errors=_BODY, error=MessageError),
    "/tokenize": _route(answers.Tokens, TokenizeText, TokenizeChat, errors=_BODY),
    "/detokenize": _route(answers.Text, DetokenizeRequest, errors=_BODY),
}
