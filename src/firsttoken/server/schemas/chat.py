"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from firsttoken.server.limits import MAX_MESSAGES, MAX_PARTS, MAX_TOOL_CALLS, MAX_TOOLS
from firsttoken.server.schemas.sampling import CompletionFields, Fields, Inside, Name, TokenCount, WrongField
from firsttoken.server.schemas.structured import GrammarFields
from firsttoken.server.schemas.tools import NamedTool, Tool, ToolChoice
from firsttoken.server.unsupported import MESSAGE


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
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "maxItems": MAX_PARTS,
                    "items": {
                        "anyOf": [
                            {
                                "type": "object",
                                "properties": {"type": {"const": kind}, kind: {"type": "string"}},
                                "required": ["type", kind],
                            }
                            for kind in ("text", "refusal")
                        ]
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]


class FunctionCall(Fields):
    name: Name
    arguments: str = Field(description="A JSON object's text. What is none is printed as it is.")


class ToolCall(Fields):
    id: Name | None = Field(None, description="What the message with its result names.")
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Fields):
    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = Field(
        None, description="Text, null, or a list of text parts. Images, audio and files are refused."
    )
    name: Name | None = Field(None, description="Given to templates that read it.")
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOL_CALLS)] | None = Field(
        None, description="What an assistant called, as its answer said it."
    )
    tool_call_id: Name | None = Field(None, description="Of the call whose result a tool message is.")
    refusal: str | None = Field(None, description="Stands for absent content.")
    reasoning_content: str | None = Field(None, description="What the model thought; for templates that read it.")
    reasoning: str | None = Field(None, description="The same, by vLLM's newer name.")

    @model_validator(mode="after")
    def _says_something(self) -> Message:
        if self.role == "assistant":
            if not self.model_fields_set & {"content", "tool_calls", "refusal"}:
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


_TEMPLATE_FIELDS = {"role", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"}


class ChatFields(Fields):
    """How messages become a prompt; `/tokenize` takes them too."""

    INSIDE: ClassVar[Inside] = (("messages", Message, MESSAGE),)

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] = Field(
        description="The conversation. Special tokens within are text."
    )
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = Field(
        None, description="Functions that the model may call."
    )
    tool_choice: ToolChoice = Field(
        None,
        description="`required`: calls and nothing else. An object names the one function to call: "
        '`{"type": "function", "function": {"name": ...}}`. Default: auto.',
    )
    add_generation_prompt: bool | None = Field(
        None, description="Opens the assistant's turn. Default: true, unless `continue_final_message`."
    )
    continue_final_message: bool | None = Field(
        None, description="Goes on from the last message, an assistant's, exactly where its text ends. Default: false."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None,
        description="Variables that the chat template reads; every model takes `enable_thinking: false`.",
    )

    @model_validator(mode="after")
    def _has_one_way_to_go_on(self) -> ChatFields:
        if self.continue_final_message:
            if self.add_generation_prompt:
                raise WrongField("continue_final_message", "it and `add_generation_prompt` exclude each other")
            if self.messages[-1].role != "assistant":
                raise WrongField("continue_final_message", "it needs an assistant message at the end of `messages`")
        return self

    @model_validator(mode="after")
    def _chooses_what_it_offers(self) -> ChatFields:
        names = [tool.function.name for tool in self.tools or ()]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise WrongField(f"tools[{place}].function.name", "another tool has the same name")
        if self.must_call and not names:
            raise WrongField("tool_choice", "it needs `tools`")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.name not in names:
            raise WrongField("tool_choice", "`tools` has no function of that name")
        return self

    @model_validator(mode="after")
    def _results_belong_to_calls(self) -> ChatFields:
        called: set[str | None] = set()
        for place, message in enumerate(self.messages):
            called.update(call.id for call in message.tool_calls or ())
            if message.role == "tool" and message.tool_call_id not in called and None not in called:
                raise WrongField(f"messages[{place}].tool_call_id", "no message before it has a tool call of that id")
        return self

    @property
    def must_call(self) -> bool:
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedTool)

    @property
    def offered_tools(self) -> list[Tool]:
        """Those that the model is told of: none where it may call none."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def callable_tools(self) -> list[Tool]:
        """Those that the answer may call."""
        if isinstance(self.tool_choice, NamedTool):
            return [tool for tool in self.offered_tools if tool.function.name == self.tool_choice.name]
        return self.offered_tools

    @property
    def opens_a_turn(self) -> bool:
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt


class ChatRequest(CompletionFields, GrammarFields, ChatFields):
    max_tokens: TokenCount | None = Field(None, description="As `max_completion_tokens`, which wins.")
    max_completion_tokens: TokenCount | None = Field(
        None, description="The most tokens of an answer. Default: up to the context's end."
    )
    parallel_tool_calls: bool | None = Field(None, description="false: the answer ends after one call. Default: true.")
    include_reasoning: bool | None = Field(
        None, description="false: what the model thinks is not shown. Default: true."
    )
    logprobs: bool | None = Field(
        None, description="Log-probabilities of the answer's tokens, of the model's own distribution. Default: false."
    )
    top_logprobs: Annotated[int, Field(ge=0)] | None = Field(
        None, description="And of the likeliest at each place, up to `--max-logprobs`."
    )

    @property
    def one_call(self) -> bool:
        """At most: where a function is named, it is called once."""
        return self.parallel_tool_calls is False or isinstance(self.tool_choice, NamedTool)

    @property
    def answer_tokens(self) -> int | None:
        """The most that the answer may have; None: up to the context's end."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _alternatives_need_logprobs(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise WrongField("top_logprobs", "it needs `logprobs` to be true")
        return self
