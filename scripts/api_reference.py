#!/usr/bin/env python3
"""Writes the tables of docs/reference/http-api.md from the server's own schemas; with --check only says whether they
are current. The text around them is written by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from firsttoken.server import unsupported
from firsttoken.server.app import make_routes
from firsttoken.server.descriptions import DESCRIPTIONS, document
from firsttoken.server.schemas.sampling import Fields
from firsttoken.server.service import Service
from firsttoken.server.unsupported import ANYTHING, Neutral

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "http-api.md"
BEGIN = "<!-- Made by scripts/api_reference.py from the schemas; edit those, not what follows. -->\n"

# What each body knows and does not honour.
KNOWN: dict[str, dict[str, Neutral]] = {
    "ChatRequest": unsupported.CHAT,
    "CompletionRequest": unsupported.COMPLETIONS,
    "ResponsesRequest": unsupported.RESPONSES,
    "MessagesRequest": unsupported.MESSAGES,
    "CountTokensRequest": unsupported.COUNT_TOKENS,
    "TokenizeText": unsupported.TOKENIZE,
    "TokenizeChat": unsupported.TOKENIZE,
    "DetokenizeRequest": {},
}
# Fields that are vLLM's, wherever a body has them; all others are those of the API that the path is named after.
VLLM_NAMES = """
add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt chat_template_kwargs
continue_final_message continuous_usage_stats guided_choice guided_grammar guided_json guided_regex
guided_whitespace_pattern ignore_eos include_reasoning include_stop_str_in_output min_p min_tokens priority
prompt_logprobs reasoning_content reasoning repetition_penalty return_token_ids return_tokens_as_token_ids
skip_special_tokens spaces_between_special_tokens stop_token_ids structured_outputs top_k truncate_prompt_tokens
"""
VLLM = frozenset(VLLM_NAMES.split())
OURS = frozenset({"/tokenize", "/detokenize"})  # vLLM's as a whole: nothing to tell apart
# Names of that list that other APIs have too.
SHARED = {"/v1/responses": {"reasoning"}, "/v1/messages": {"top_k"}}


def main() -> int:
    page = PAGE.read_text()
    text, _, _ = page.partition(BEGIN)
    made = text + BEGIN + render()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    if page == made:
        return 0
    print("docs/reference/http-api.md is not current: run scripts/api_reference.py")
    return 1


def render() -> str:
    openapi = document(make_routes(cast("Service", None)))  # nothing is asked of them
    bodies = {body.__name__: body for described in DESCRIPTIONS.values() for body in described.bodies}
    schemas: dict[str, Any] = openapi["components"]["schemas"]
    parts = ["\n## Routes\n", _routes(openapi)]
    shown: set[str] = set()
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            names = list(_body_names(operation))
            if not names:
                continue
            parts.append(f"\n## {method.upper()} {path}")
            vllm = frozenset() if path in OURS else VLLM - SHARED.get(path, set())
            for name in names:
                parts += _body(name, bodies[name], schemas, shown, vllm)
    return "\n".join(parts) + "\n"


def _routes(document: dict[str, Any]) -> str:
    rows = ["| route | answers |", "|---|---|"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            statuses = ", ".join(sorted(operation["responses"]))
            rows.append(f"| `{method.upper()} {path}` | {statuses} |")
    return "\n".join(rows)


def _body_names(operation: dict[str, Any]) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    for kind in content.values():
        for form in kind["schema"].get("anyOf", [kind["schema"]]):
            yield _name(form)


def _body(
    name: str, body: type[BaseModel], schemas: dict[str, Any], shown: set[str], vllm: frozenset[str]
) -> Iterator[str]:
    """The body's own fields, the objects within that no table has shown yet, and what is known and not honoured."""
    yield f"\n### {name}\n"
    yield _table(schemas[name], vllm)
    inside = _inside(body)
    for inner in _referenced(schemas[name], schemas):
        if inner in shown:
            continue
        shown.add(inner)
        yield f"\n#### {inner}\n"
        if said := schemas[inner].get("description"):
            yield " ".join(said.split()) + "\n"
        yield _table(schemas[inner], vllm)
    refused = [(field, neutral) for field, neutral in KNOWN[name].items()]
    refused += [(f"{outer}.{field}", neutral) for outer, known in inside for field, neutral in known.items()]
    if refused:
        yield f"\n#### Known and not honoured in {name}\n"
        yield "| field | accepted, since it changes nothing |\n|---|---|"
        yield from (f"| `{field}` | {_accepted(neutral)} |" for field, neutral in sorted(refused))


def _inside(body: type[BaseModel]) -> list[tuple[str, dict[str, Neutral]]]:
    found: dict[str, dict[str, Neutral]] = {}
    for base in reversed(body.__mro__):
        if issubclass(base, Fields):
            found |= {field: known for field, _, known in base.INSIDE}
    return list(found.items())


def _table(schema: dict[str, Any], vllm: frozenset[str]) -> str:
    required = schema.get("required", [])
    rows = ["| field | form | default | |", "|---|---|---|---|"]
    for field, form in schema.get("properties", {}).items():
        text, _, default = form.get("description", "").partition("Default: ")
        if not default:
            default = "required" if field in required else _default(form)
        origin = " (vLLM)" if field in vllm else ""
        rows.append(f"| `{field}`{origin} | {_form(form)} | {default.strip().rstrip('.')} | {text.strip()} |")
    return "\n".join(rows)


def _default(form: dict[str, Any]) -> str:
    value = form.get("default")
    return "" if value is None else f"`{json.dumps(value)}`"


def _form(form: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in form:
        return f"[{_name(form)}](#{_name(form).lower()})"
    if "anyOf" in form:
        return " or ".join(dict.fromkeys(_form(each) for each in form["anyOf"] if each.get("type") != "null"))
    if "const" in form or "enum" in form:
        return ", ".join(f"`{json.dumps(value)}`" for value in form.get("enum", [form.get("const")]))
    kind = form.get("type", "any")
    if kind == "array":
        return f"list{_bounds(form, 'Items', 'item')} of {_form(form.get('items', {}))}"
    if kind == "string":
        return "text" + _bounds(form, "Length", "character")
    return ("true or false" if kind == "boolean" else str(kind)) + _range(form)


def _bounds(form: dict[str, Any], what: str, unit: str) -> str:
    least, most = form.get(f"min{what}"), form.get(f"max{what}")
    if least is None and most is None:
        return ""
    if most is None:
        return f" (at least {least} {unit}{'' if least == 1 else 's'})"
    return f" ({least or 0} to {most} {unit}s)"


def _range(form: dict[str, Any]) -> str:
    parts = [
        f"{sign} {_number(form[key])}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in form
    ]
    return f" {', '.join(parts)}" if parts else ""


def _number(value: float) -> str:
    for power in (31, 63):
        if abs(value) in (2**power, 2**power - 1):
            return ("-" if value < 0 else "") + f"2^{power}" + (" - 1" if abs(value) == 2**power - 1 else "")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _referenced(schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Names of the objects within, in the order in which they are met."""
    seen: dict[str, None] = {}
    waiting = [schema]
    while waiting:
        for name in _references(waiting.pop(0)):
            if name not in seen:
                seen[name] = None
                waiting.append(schemas[name])
    yield from seen


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield _name(node)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _name(reference: dict[str, Any]) -> str:
    name: str = reference["$ref"].rpartition("/")[2]
    return name


def _accepted(neutral: Neutral) -> str:
    if neutral is ANYTHING:
        return "anything"
    return ", ".join(["null", *(f"`{json.dumps(value)}`" for value in neutral)])


if __name__ == "__main__":
    sys.exit(main())
