"""A request's grammar in llguidance's own form."""

from __future__ import annotations

import json

from llguidance import LLMatcher, regex_to_lark

from firsttoken import lark
from firsttoken.types import Grammar


def to_llguidance(grammar: Grammar) -> str:
    """Checks little: what is wrong is found when it is compiled. Raises ValueError where a source is no JSON."""
    answer = _answer(grammar)
    return _within(grammar.around, answer) if grammar.around else answer


def _within(around: str, answer: str) -> str:
    """The library takes text that begins with a brace for a list of grammars."""
    grammars = json.loads(answer)["grammars"] if answer.startswith("{") else [{"lark_grammar": answer}]
    grammars[0]["name"] = "answer"
    return json.dumps({"grammars": [{"lark_grammar": around}, *grammars]})


def _answer(grammar: Grammar) -> str:
    match grammar.kind:
        case "json_object":
            return _schema('{"type": "object"}', grammar)
        case "json_schema":
            return _schema(grammar.source, grammar)
        case "regex":
            ascii_digits = regex_to_lark(grammar.source, "d")
            return LLMatcher.grammar_from_lark(f"start: /{ascii_digits}/")
        case "choice":
            choices: list[str] = json.loads(grammar.source)
            return LLMatcher.grammar_from_lark("start: " + " | ".join(map(lark.text, choices)))
        case "lark":
            return LLMatcher.grammar_from_lark(grammar.source)


def _schema(source: str, grammar: Grammar) -> str:
    options = lark.json_options(grammar.whitespace, lenient=grammar.lenient)
    return LLMatcher.grammar_from_json_schema(source, overrides=options)  # type: ignore[arg-type]
