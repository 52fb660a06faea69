"""A grammar for all that a model may write in one answer: thoughts, calls of tools, text or a structured answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from firsttoken import lark
from firsttoken.server import reasoning
from firsttoken.server.schemas.tools import Function
from firsttoken.server.tools.call_form import CallForm

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
_SPOKEN = r"/(\s*[^{\s](.|\n)*)?/"  # text that a form without tags does not take for calls


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """Which calls may come, in the model's own form: once one is opened, nothing else can follow.

    `must`: calls and nothing else; without it, text with calls in it. `single`: one call at most. Arguments keep to
    all of a strict function's schema, and to what the grammar's compiler knows of another's.
    """

    form: CallForm
    functions: Sequence[Function]
    must: bool
    single: bool


Thoughts = Literal["none", "open", "possible"]  # open: the prompt has begun them


def answer_grammar(
    *, thoughts: Thoughts, calls: CallRules | None, structured: bool, is_token: Callable[[str], bool]
) -> str:
    """Lark. `structured`: what is neither thought nor call keeps to another grammar, `@answer`.

    `is_token`: whether a tag is a token of its own. Text then never has it in it; else text is as short as it can be
    before a tag, so that none of it hides one.
    """
    rules = [r"TEXT: /(.|\n)*/", r"GAP: /\n{0,2}/"]

    def tag(text: str) -> str:
        return text if is_token(text) else lark.text(text)

    def text_and_tag(name: str, text: str) -> str:
        rules.append(f"{name}: TEXT {text}" if is_token(text) else f"{name}[lazy]: TEXT {lark.text(text)}")
        return name

    start = ""
    if thoughts != "none":
        start = f"{text_and_tag('thoughts', reasoning.CLOSE)} GAP "
        if thoughts == "possible":
            start = f"({tag(reasoning.OPEN)} {start})? "
    if calls is None:
        return "\n".join([f"start: {start}@answer", *rules])
    rules += _bodies(calls)
    form = calls.form
    if form.opening is None or form.closing is None:
        all_calls = _several("body", calls)
        answer = all_calls if calls.must else f"({'@answer' if structured else _SPOKEN} | {all_calls})"
    elif calls.must or structured:
        rules.append(f'call: {tag(form.opening)} "\\n" body "\\n" {tag(form.closing)}')
        answer = _several("call", calls)
        if not calls.must:
            answer = f"(@answer | {answer})"
    else:
        rules.append(f'call: {text_and_tag("opened", form.opening)} "\\n" body "\\n" {tag(form.closing)}')
        answer = f"call{'?' if calls.single else '*'} TEXT"
    return "\n".join([f"start: {start}{answer}", *rules])


def _bodies(calls: CallRules) -> list[str]:
    """`body`: a JSON object with name and arguments, its keys and spaces as templates print them."""
    names = [f"body_{i}" for i in range(len(calls.functions))]
    rules = [f"body: {' | '.join(names)}"]
    for name, function in zip(names, calls.functions, strict=True):
        written = json.dumps({"name": function.name}, ensure_ascii=False)[:-1]
        head = lark.text(f'{written}, "{calls.form.arguments}": ')
        schema = _NO_ARGUMENTS if function.parameters is None else {"type": "object", **function.parameters}
        rules.append(f'{name}: {head} arguments_{name} "}}"')
        rules.append(f"arguments_{name}: {lark.json_value(schema, lenient=not function.strict)}")
    return rules


def _several(rule: str, calls: CallRules) -> str:
    return rule if calls.single else f"{rule} ({lark.text(calls.form.separator)} {rule})*"
