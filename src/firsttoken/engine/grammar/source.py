"""A request's grammar in llguidance's own form."""

from __future__ import annotations

import json

from llguidance import regex_to_lark

from firsttoken import lark
from firsttoken.types import Grammar

# Otherwise text that a grammar leaves no choice of would have to be cut as the tokeniser cuts it, which takes the whole
# tokeniser; a model cuts it so by itself, and masks cost less. At the end, so that places in errors stay true.
_OPTIONS = '\n%llguidance {"no_forcing": true}\n'


def to_llguidance(grammar: Grammar) -> str:
    """Checks little: what is wrong is found when it is compiled. Raises ValueError where a source is no JSON."""
    answer = {"name": "answer", "lark_grammar": _lark(grammar) + _OPTIONS}
    grammars = [{"lark_grammar": grammar.around + _OPTIONS}, answer] if grammar.around else [answer]
    return json.dumps({"grammars": grammars})


def _lark(grammar: Grammar) -> str:
    match grammar.kind:
        case "json_object":
            return "start: " + lark.json_value({"type": "object"}, whitespace=grammar.whitespace)
        case "json_schema":
            schema = json.loads(grammar.source)
            return "start: " + lark.json_value(schema, whitespace=grammar.whitespace, lenient=grammar.lenient)
        case "regex":
            ascii_digits = regex_to_lark(grammar.source, "d")
            return f"start: /{ascii_digits}/"
        case "choice":
            # a terminal: alternatives of a rule would be followed one by one
            return "start: CHOICE\nCHOICE: " + " | ".join(map(lark.text, json.loads(grammar.source)))
        case "lark":
            return grammar.source
