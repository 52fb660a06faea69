"""From a request's bytes to a checked schema, or to one sentence that names the field at fault."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from firsttoken.errors import InvalidRequest
from firsttoken.server.error_handlers import wrong_value
from firsttoken.server.limits import JSON_LIMITS, JsonLimits
from firsttoken.server.schemas.sampling import WrongField
from firsttoken.server.unsupported import Neutral, refuse_unsupported

log = logging.getLogger("firsttoken.server")

Schema = TypeVar("Schema", bound=BaseModel)
Result = TypeVar("Result")

_INLINE_BYTES = 64 * 1024  # shorter bodies are checked in well under a millisecond
_MAX_NAMED = 16  # unknown fields told of
_MAX_NAME = 100  # bytes of each, once it is escaped: many clients take 8 KiB of headers in all
_IGNORED_HEADER = "X-Firsttoken-Ignored-Fields"

_SENTENCES = {
    "missing": "it is missing",
    "finite_number": "expected a finite number",
    "int_type": "expected an integer",
    "int_from_float": "expected an integer",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected a string",
    "list_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "int_parsing_size": "the number is too large",
    "greater_than": "expected a value > {gt}, but got {input}",
    "greater_than_equal": "expected a value >= {ge}, but got {input}",
    "less_than": "expected a value < {lt}, but got {input}",
    "less_than_equal": "expected a value <= {le}, but got {input}",
    "too_long": "expected at most {max_length} items",
    "too_short": "expected at least {min_length} item(s)",
    "string_too_long": "expected at most {max_length} characters",
    "string_too_short": "expected at least {min_length} character(s)",
    "literal_error": "expected one of {expected}",
    "value_error": "{error}",
}


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Schema]):
    body: Schema
    headers: dict[str, str]  # for the response: names of ignored fields


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A request's body, an object."""

    fields: dict[str, Any]
    size: int  # bytes


async def read_object(request: Request) -> JsonBody:
    """The body as a JSON object. NaN and Infinity are let through here, so that the schema can name their field.

    The parser itself refuses more than 200 levels of nesting and text that is not Unicode. Raises InvalidRequest.
    """
    raw = await request.body()
    limits: JsonLimits = request.scope[JSON_LIMITS]
    try:
        value = _loads(raw)
    except ValueError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    if len(raw) <= _INLINE_BYTES:
        limits.check(value)
    else:
        await asyncio.to_thread(limits.check, value)
    return JsonBody(value, len(raw))


def _loads(raw: bytes) -> Any:
    """Without collections meanwhile: eight megabytes of empty lists take 0.7 s with them and 0.1 s without."""
    gc.disable()
    try:
        return from_json(raw, allow_inf_nan=True)
    finally:
        gc.enable()


async def parse(
    schema: type[Schema], body: JsonBody, known: Mapping[str, Neutral], *, strict_fields: bool
) -> Parsed[Schema]:
    """Raises InvalidRequest for a wrong value, a known field that is not honoured, or, if strict, an unknown one."""
    return await off_loop_if_long(partial(check, schema, body.fields, known, strict_fields=strict_fields), body)


async def off_loop_if_long(work: Callable[[], Result], body: JsonBody) -> Result:
    """A long body is checked in a thread: a list of a million ids takes long enough for others' tokens to be late."""
    return work() if body.size <= _INLINE_BYTES else await asyncio.to_thread(work)


def check(
    schema: type[Schema], fields: dict[str, Any], known: Mapping[str, Neutral], *, strict_fields: bool
) -> Parsed[Schema]:
    """`parse`, in the thread that it is called in."""
    mine = schema.model_fields
    unknown = refuse_unsupported({name: value for name, value in fields.items() if name not in mine}, dict(known))
    unknown += _unknown_inside(schema, fields)
    if unknown and strict_fields:
        raise InvalidRequest(
            f"Unrecognized request argument supplied: {unknown[0][:100]}.", param=unknown[0][:100], code="unknown_field"
        )
    try:
        body = schema.model_validate(fields)
    except ValidationError as error:
        raise _as_invalid_request(error) from None
    if not unknown:
        return Parsed(body, {})
    names = ",".join(_in_header(name) for name in unknown[:_MAX_NAMED])
    log.info("ignored %d unknown field(s) of a request: %s", len(unknown), names)
    return Parsed(body, {_IGNORED_HEADER: names})


def _in_header(name: str) -> str:
    """Escaped and cut, between escapes."""
    escaped = ""
    for char in name[:_MAX_NAME]:
        more = quote(char, safe="[].")
        if len(escaped) + len(more) > _MAX_NAME:
            break
        escaped += more
    return escaped


def _unknown_inside(schema: type[BaseModel], fields: dict[str, Any]) -> list[str]:
    unknown: list[str] = []
    for name, inner, known in (each for base in schema.__mro__ for each in base.__dict__.get("INSIDE", ())):
        mine = {field.alias or field_name for field_name, field in inner.model_fields.items()}
        given = fields.get(name)
        objects = [(f"{name}.", given)]
        if isinstance(given, list):
            objects = [(f"{name}[{place}].", each) for place, each in enumerate(given)]
        for prefix, value in objects:
            if isinstance(value, dict):
                rest = {key: item for key, item in value.items() if key not in mine}
                unknown += refuse_unsupported(rest, known, prefix)
    return unknown


def _as_invalid_request(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False)[0]
    cause = (first.get("ctx") or {}).get("error")
    param = _path((*first["loc"], cause.field) if isinstance(cause, WrongField) else first["loc"])
    return wrong_value(param, _sentence(first))


def _path(location: Iterable[int | str]) -> str:
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def _sentence(error: ErrorDetails) -> str:
    form = _SENTENCES.get(error["type"])
    if form is None:
        return error["msg"][:1].lower() + error["msg"][1:]
    given = error["input"]
    shown = f"{given}"[:40] if isinstance(given, int | float) else "something else"
    return form.format_map({**(error.get("ctx") or {}), "input": shown})
