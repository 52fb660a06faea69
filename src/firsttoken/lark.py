"""Pieces of a Lark grammar, in the dialect that `Grammar(kind="lark")` takes. Standard library only.

Special tokens are written without quotes, `<|im_end|>` or `<tool_call>`, in rules and not in terminals; any token that
the tokeniser lists as added is one, and a name that it does not list is an error. Quoted text never becomes a special
token. `<[151657]>` is a token by its id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Of JSON, wherever it allows some: a space or two, or a new line and its indentation. Unbounded, a model that is at
# a loss writes spaces for ever.
WHITESPACE = r"\x20{1,2}|\r?\n[\x20\t]{0,32}"


def text(literal: str) -> str:
    """Exactly this text."""
    return json.dumps(literal)  # its escapes mean the same in Lark


def json_value(schema: Mapping[str, Any] | bool, *, whitespace: str | None = None, lenient: bool = False) -> str:
    """JSON that satisfies a schema. `whitespace` and `lenient`: as in `Grammar`."""
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    pattern = WHITESPACE if whitespace is None else whitespace
    options = {  # all of them, so that the schema's own `x-guidance` counts for nothing
        "whitespace_pattern": pattern or None,
        "whitespace_flexible": bool(pattern),
        "item_separator": ",",
        "key_separator": ":",
        "coerce_one_of": lenient,
        "lenient": lenient,
    }
    return "%json " + json.dumps({**schema, "x-guidance": options})
