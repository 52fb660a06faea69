"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from firsttoken.server.limits import MAX_MESSAGES, MAX_PARTS, MAX_TOOL_CALLS
from firsttoken.server.schemas.sampling import CompletionFields, Fields, Name, TokenCount, WrongField


def _checked(value: Any) -> Any:
    """Text, null, or a list of text parts; the tokenizer makes of them what the model's template reads."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("expected a text or a list of parts")
    if len(value) > MAX_PARTS:
        raise ValueError(f"expected at most {MAX_PARTS} parts, but got {len(value)}")
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal") or not isinstance(part.get(kind), str):
            raise ValueError('every part must be {"type": "text", "text": ...}: this server takes text only')
    return value


Content = Annotated[
    Any,
    BeforeValidator(_checked),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]}),
]


class FunctionCall(Fields):
    name: Name
    arguments: str


class ToolCall(Fields):
    id: Name | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Fields):
    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: Name | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: Name | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.role == "assistant":
            given = self.model_fields_set & {"content", "tool_calls", "refusal"}
            if not given:
                raise WrongField("content", "an assistant message needs it, or `tool_calls`")
        elif "content" not in self.model_fields_set:
            raise WrongField("content", f"a {self.role} message needs it")
        if self.tool_calls and self.role != "assistant":
            raise WrongField("tool_calls", "only an assistant message may have them")
        if self.role == "tool" and self.tool_call_id is None:
            raise WrongField("tool_call_id", "a tool message needs it")
        return self

    def for_template(self) -> dict[str, Any]:
        message = self.model_dump(include=_TEMPLATE_FIELDS, exclude_none=True)
        message["content"] = self.refusal if self.content is None else self.content
        return message


_TEMPLATE_FIELDS = {"role", "name", "tool_calls", "tool_call_id"}


class ChatFields(Fields):
    """How messages become a prompt; `/tokenize` takes them too."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _has_one_way_to_go_on(self) -> ChatFields:
        if self.continue_final_message:
            if self.add_generation_prompt:
                raise WrongField("continue_final_message", "it and `add_generation_prompt` exclude each other")
            if self.messages[-1].role != "assistant":
                raise WrongField("continue_final_message", "it needs an assistant message at the end of `messages`")
        return self

    @property
    def opens_a_turn(self) -> bool:
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt


class ChatRequest(CompletionFields, ChatFields):
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None

    @property
    def answer_tokens(self) -> int | None:
        """The most that the answer may have; None: up to the context's end."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _alternatives_need_logprobs(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise WrongField("top_logprobs", "it needs `logprobs` to be true")
        return self
