"""From a request's fields to the grammar that its answer keeps to, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic_core import from_json

from firsttoken.config import ServerConfig
from firsttoken.errors import InvalidRequest
from firsttoken.server.error_handlers import wrong_value
from firsttoken.server.schemas.structured import GrammarFields
from firsttoken.types import Grammar

GRAMMAR_REFUSED = "invalid_grammar"  # the code that the engine gives
_INLINE_CHARS = 2048  # a longer grammar in GBNF is turned into Lark in a thread: 2 ms a thousand characters
_LONGEST_REASON = 300  # characters


@dataclass(frozen=True, slots=True)
class Structure:
    """A grammar, and the request's field that asked for it."""

    grammar: Grammar
    field: str


async def structure_of(body: GrammarFields, config: ServerConfig) -> Structure | None:
    """None where the answer may be any text. Raises InvalidRequest for what is too large, too deep or no grammar.

    Whether a grammar makes sense is found out by the engine, before it accepts the request.
    """
    if not body.all_wanted:
        return None
    (wanted,) = body.all_wanted
    field, value = wanted.field, wanted.value
    match wanted.kind:
        case "json_object":
            grammar = Grammar(kind="json_object", source="", whitespace=body.whitespace)
        case "json_schema":
            source = schema_text(value, field, config)
            grammar = Grammar(kind="json_schema", source=source, whitespace=body.whitespace, lenient=wanted.lenient)
        case "regex":
            grammar = Grammar(kind="regex", source=value)
        case "choice":
            grammar = Grammar(kind="choice", source=msgspec.json.encode(value).decode())
        case "grammar":
            check_size(value, field, config)
            grammar = Grammar(kind="lark", source=await _lark(value, field))
    check_size(grammar.source, field, config)
    return Structure(grammar, field)


@contextmanager
def grammar_named(structure: Structure | None) -> Iterator[None]:
    """The engine's refusal of a grammar becomes one of the field that asked for it."""
    try:
        yield
    except InvalidRequest as error:
        if structure is None or error.code != GRAMMAR_REFUSED:
            raise
        field = structure.field
        raise InvalidRequest(f"Invalid '{field}': {error.message}", param=field, code=GRAMMAR_REFUSED) from None


def schema_text(value: Any, field: str, config: ServerConfig) -> str:
    """The schema's text, by which equal ones are known. Raises InvalidRequest where it is too large or too deep."""
    if isinstance(value, str):
        check_size(value, field, config)
        try:
            value = from_json(value, allow_inf_nan=False)
        except ValueError as error:
            raise wrong_value(field, f"it is not valid JSON: {error}") from None
    if not isinstance(value, dict | bool):
        raise wrong_value(field, "expected a JSON schema, which is an object")
    source = msgspec.json.encode(value).decode()
    check_size(source, field, config)
    if _depth(value) > config.max_grammar_depth:
        raise wrong_value(field, f"it is nested more than {config.max_grammar_depth} levels deep")
    return source


def _depth(value: Any) -> int:
    """Levels of objects and lists, without recursion."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


async def _lark(source: str, field: str) -> str:
    """A grammar in GBNF, which is also what vLLM's users know as EBNF, in Lark; one that has a `start:` is Lark."""

    def convert() -> str:
        # Imported by the first such request: it takes some 20 ms, and no other needs it.
        from llguidance.gbnf_to_lark import any_to_lark

        try:
            return any_to_lark(source)
        except RecursionError:
            raise wrong_value(field, "it is nested too deeply") from None
        except Exception as error:  # the library raises bare Exception
            reason = " ".join(str(error).split())[:_LONGEST_REASON]
            raise wrong_value(field, f"it has no `start:` as Lark has, and is no GBNF: {reason.rstrip('.')}") from None

    return convert() if len(source) <= _INLINE_CHARS else await asyncio.to_thread(convert)


def check_size(source: str, field: str, config: ServerConfig) -> None:
    """Raises InvalidRequest."""
    if len(source) > config.max_grammar_size:
        raise wrong_value(field, f"expected at most {config.max_grammar_size} characters, but got {len(source)}")
