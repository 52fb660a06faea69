"""`POST /v1/completions`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from firsttoken.server.limits import MAX_PROMPTS
from firsttoken.server.schemas.sampling import CompletionFields
from firsttoken.server.schemas.structured import GrammarFields

Prompt = str | list[int]


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def as_prompts(value: Any) -> list[Prompt]:
    """The four forms of a prompt as one list: text, token ids, or a list of either."""
    if isinstance(value, str) or _is_ids(value):
        return [value]
    if not isinstance(value, list) or not value:
        raise ValueError("expected a text, a list of texts, a list of token ids, or a list of such lists, not empty")
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"expected at most {MAX_PROMPTS} prompts, but got {len(value)}")
    if not all(isinstance(item, str) or _is_ids(item) for item in value):
        raise ValueError("every prompt must be a text or a list of token ids, not empty")
    return value


_IDS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
Prompts = Annotated[
    list[Any],
    BeforeValidator(as_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_PROMPTS,
                    "items": {"anyOf": [{"type": "string"}, _IDS]},
                },
                _IDS,
            ]
        }
    ),
]


class CompletionRequest(CompletionFields, GrammarFields):
    prompt: Prompts = Field(
        description="Text, token ids, or up to 256 of either; each has `n` choices, index = place x n + i."
    )
    max_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, description="0 with `echo`: the prompt alone. Default: 16, or `min_tokens` where that is more."
    )
    echo: bool | None = Field(
        None,
        description="The prompt goes before the answer, scored where `logprobs` are asked for. Default: false.",
    )
    logprobs: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Of each token and so many of the likeliest, up to `--max-logprobs`; 0: the token's own."
    )
    best_of: Annotated[int, Field(ge=1)] | None = Field(None, description="Accepted where it equals `n`.")
    add_special_tokens: bool | None = Field(
        None, description="The tokenizer adds its own (a BOS) to a text. Default: true."
    )
