"""The fields that several ways of asking for text share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from firsttoken.server.limits import (
    MAX_ALLOWED_IDS,
    MAX_BAD_WORDS,
    MAX_LOGIT_BIAS,
    MAX_NAME,
    MAX_STOP_IDS,
)
from firsttoken.server.unsupported import STREAM_OPTIONS, Neutral

MAX_SEED = 2**63 - 1


Inside = tuple[tuple[str, type[BaseModel], dict[str, Neutral]], ...]


class Fields(BaseModel):
    """Strict: a number in quotes is no number. Keys that it does not know are dealt with before (`parsing`).

    `INSIDE` names the fields whose objects (one, or a list) are looked at for such keys: the field, their schema, and
    the keys that are known and not honoured. Those of base classes count too.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")
    INSIDE: ClassVar[Inside] = ()


class WrongField(ValueError):
    """One field at fault, where a whole object is looked at."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def _as_stop_list(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise ValueError("expected a string or a list of strings")
    if any(not stop for stop in stops):
        raise ValueError("a stop string may not be empty")
    return stops


def _as_bias(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("expected an object from token ids to numbers")
    if len(value) > MAX_LOGIT_BIAS:
        raise ValueError(f"expected at most {MAX_LOGIT_BIAS} tokens, but got {len(value)}")
    bias: dict[int, float] = {}
    for key, amount in value.items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 9):
            raise ValueError("every key must be a token id in decimal digits")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not -100 <= amount <= 100:
            raise ValueError("every value must be a number from -100 to 100")
        bias[int(key)] = float(amount)
    return bias


Stops = Annotated[
    list[str],
    BeforeValidator(_as_stop_list),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}},
            ]
        }
    ),
]
LogitBias = Annotated[
    dict[int, float],
    BeforeValidator(_as_bias),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_LOGIT_BIAS,
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
BadWord = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
TokenCount = Annotated[int, Field(ge=1, le=2**31 - 1)]


class StreamOptions(Fields):
    include_usage: bool | None = Field(None, description="A last chunk with the usage.")
    continuous_usage_stats: bool | None = Field(
        None, description="With `include_usage`: the usage of the request so far in every chunk."
    )


class SamplingFields(Fields):
    """What every way of asking for text has. None everywhere means: not given; the model's own default, then OpenAI's,
    takes its place."""

    model: Name | None = Field(None, description="One of the names of `/v1/models`. Default: the first.")
    stream: bool | None = Field(None, description="Server-sent events instead of one answer. Default: false.")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="0 is greedy. Default: the model's own (`generation_config`), else 1."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Default: the model's own (`generation_config`), else 1."
    )
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = Field(
        None, description="0 and -1 are off. Default: the model's own (`generation_config`), else off."
    )
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Relative to the likeliest token. Default: the model's own (`generation_config`), else 0."
    )
    seed: Annotated[int, Field(ge=-MAX_SEED - 1, le=MAX_SEED)] | None = Field(
        None, description="Answer i of `n` uses seed + i. Default: drawn for each answer."
    )
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = Field(
        None, description="Over prompt and answer. Default: the model's own (`generation_config`), else 1."
    )
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        None, description="Over the answer. Default: the model's own (`generation_config`), else 0."
    )
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        None, description="Over the answer. Default: the model's own (`generation_config`), else 0."
    )
    logit_bias: LogitBias | None = Field(None, description="From token ids to -100 to 100; at most 1024.")
    stop: Stops | None = Field(
        None,
        description="The earliest of these texts in the answer ends it and is no part of it. `--max-stop` texts, "
        "`--max-stop-length` characters together (OpenAI takes 4).",
    )
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_STOP_IDS)] | None = Field(
        None, description="Ids that end the answer."
    )
    min_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, description="Nothing ends the answer before: end ids are masked, stop texts not looked for. Default: 0."
    )
    ignore_eos: bool | None = Field(None, description="The model's own end ids do not end the answer. Default: false.")
    include_stop_str_in_output: bool | None = Field(
        None, description="The text that stopped stays in the answer. Default: false."
    )
    skip_special_tokens: bool | None = Field(
        None, description="Special tokens are left out of the text. Default: true."
    )
    spaces_between_special_tokens: bool | None = Field(
        None, description="Accepted: none are put there by any tokenizer that is read."
    )
    allowed_token_ids: Annotated[list[int], Field(min_length=1, max_length=MAX_ALLOWED_IDS)] | None = Field(
        None, description="No other id is chosen. Not beside a form that the answer must have."
    )
    bad_words: Annotated[list[BadWord], Field(max_length=MAX_BAD_WORDS)] | None = Field(
        None,
        description="Texts that the answer does not complete, as the tokenizer itself would spell them. "
        "Not beside a form that the answer must have.",
    )
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = Field(
        None, description="Keeps the prompt's last so many tokens; -1: as many as fit."
    )
    cache_salt: Name | None = Field(
        None,
        description="Cached blocks are shared only among requests of one salt. Default: none.",
    )
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = Field(
        None, description="Lower runs first. Other than 0 only with `--scheduling-policy priority`. Default: 0."
    )

    @field_validator("truncate_prompt_tokens")
    @classmethod
    def _some_tokens_are_kept(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("expected -1 (as many as fit) or at least 1 token")
        return value


class CompletionFields(SamplingFields):
    """What chat and text completions share beyond that."""

    INSIDE: ClassVar[Inside] = (("stream_options", StreamOptions, STREAM_OPTIONS),)

    stream_options: StreamOptions | None = Field(None, description="What a stream tells besides; it needs `stream`.")
    n: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Answers to make, up to `--max-n`; the prompt is computed once. Default: 1."
    )
    return_tokens_as_token_ids: bool | None = Field(None, description="Tokens in `logprobs` are written `token_id:ID`.")
    return_token_ids: bool | None = Field(
        None, description="Adds `prompt_token_ids`, and `token_ids` with the one that ended the answer."
    )
    prompt_logprobs: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Scores the prompt's tokens, and so many of the likeliest, up to `--max-logprobs`; no stream.",
    )

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> CompletionFields:
        if self.include_usage and not self.stream:
            raise WrongField("stream_options", "it needs `stream` to be true")
        return self

    @model_validator(mode="after")
    def _a_stream_carries_no_prompt_logprobs(self) -> CompletionFields:
        if self.prompt_logprobs is not None and self.stream:
            raise WrongField("prompt_logprobs", "a stream does not carry them; leave out `stream`")
        return self

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.include_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)
