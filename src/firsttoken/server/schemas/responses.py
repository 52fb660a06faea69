"""`POST /v1/responses`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from firsttoken.server.limits import MAX_MESSAGES, MAX_NAME, MAX_PARTS, MAX_TOOLS
from firsttoken.server.schemas.sampling import Fields, Inside, Name, SamplingFields, TokenCount, WrongField
from firsttoken.server.unsupported import RESPONSES_ITEM, RESPONSES_REASONING, RESPONSES_TEXT, RESPONSES_TOOL

_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal", "reasoning_text": "text"}
# What an item of each type must have.
_NEEDS = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
}


def _as_parts(value: Any) -> Any:
    """Text or a list of text parts."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("expected a text or a list of parts")
    if len(value) > MAX_PARTS:
        raise ValueError(f"expected at most {MAX_PARTS} parts, but got {len(value)}")
    for part in value:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if kind not in _PARTS or not isinstance(part.get(_PARTS[kind]), str):
            raise ValueError('every part must be {"type": "input_text", "text": ...}: this server takes text only')
    return value


def _as_item_type(value: Any) -> Any:
    if isinstance(value, str) and value not in _NEEDS:
        raise ValueError(f"'{value[:40]}' is not an item of this server; it takes {', '.join(_NEEDS)}")
    return value


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _as_choice(value: Any) -> Any:
    if value in ("none", "auto", "required"):
        return value
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "function" and isinstance(value.get("name"), str):
        return value
    if kind == "allowed_tools" and value.get("mode") in ("auto", "required") and _are_functions(value.get("tools")):
        return value
    raise ValueError(
        "expected 'none', 'auto', 'required', {\"type\": \"function\", \"name\": ...} or allowed_tools with functions"
    )


def _are_functions(tools: Any) -> bool:
    return (
        isinstance(tools, list)
        and 0 < len(tools) <= MAX_TOOLS
        and all(
            isinstance(tool, dict) and tool.get("type") == "function" and isinstance(tool.get("name"), str)
            for tool in tools
        )
    )


def _as_function(value: Any) -> Any:
    if isinstance(value, str) and value != "function":
        raise ValueError(f"'{value[:40]}' is not a tool of this server; it takes functions, which the client runs")
    return value


Parts = Annotated[
    Any,
    BeforeValidator(_as_parts),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}]}),
]


class InputItem(Fields):
    """A message, a call of a function, its output, or what a model thought before.

    Items that belong to OpenAI's built-in tools, and references to stored ones, are refused.
    """

    type: Annotated[
        Literal["message", "function_call", "function_call_output", "reasoning"], BeforeValidator(_as_item_type)
    ] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = Field(None, description="Of a message.")
    content: Parts = Field(None, description="Of a message, or of reasoning: text or a list of text parts.")
    call_id: Name | None = Field(None, description="Of a function's call and of its output: what ties them together.")
    name: Name | None = Field(None, description="Of a function's call.")
    arguments: str | None = Field(None, description="Of a function's call: JSON text.")
    output: Parts = Field(None, description="Of a function's output: text or a list of text parts.")

    @model_validator(mode="after")
    def _is_whole(self) -> InputItem:
        for field in _NEEDS[self.type]:
            if getattr(self, field) is None:
                raise WrongField(field, f"an item of type '{self.type}' needs it")
        return self


class FunctionTool(Fields):
    """A function that the model may call. Built-in tools (web_search, file_search, mcp, ...) are refused."""

    type: Annotated[Literal["function"], BeforeValidator(_as_function)]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="JSON schema of the arguments.")
    strict: bool | None = Field(None, description="As in chat completions.")


class TextFormat(Fields):
    """The form of the answer; as `response_format` of chat completions."""

    type: Literal["text", "json_object", "json_schema"]
    name: Name | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _has_a_schema(self) -> TextFormat:
        if self.type == "json_schema":
            for field, value in (("name", self.name), ("schema", self.json_schema)):
                if value is None:
                    raise WrongField(field, "a format of type 'json_schema' needs it")
        return self


class TextConfig(Fields):
    """How the text is to be."""

    format: TextFormat | None = Field(None, description="`text` where it is left out.")


class ReasoningConfig(Fields):
    """How long a model may think."""

    effort: str | None = Field(None, description="As `reasoning_effort` of chat completions.")


class ResponsesRequest(SamplingFields):
    """Stateless: nothing is stored, so `store` is false whether or not it is sent."""

    INSIDE: ClassVar[Inside] = (
        ("input", InputItem, RESPONSES_ITEM),
        ("tools", FunctionTool, RESPONSES_TOOL),
        ("text", TextConfig, RESPONSES_TEXT),
        ("reasoning", ReasoningConfig, RESPONSES_REASONING),
    )

    input: Annotated[
        list[InputItem],
        BeforeValidator(_as_items, json_schema_input_type=str | list[InputItem]),
        Field(min_length=1, max_length=MAX_MESSAGES, description="A user's text, or what was said so far."),
    ]
    instructions: str | None = Field(None, description="A system message before the input.")
    max_output_tokens: TokenCount | None = Field(
        None, description="The most tokens of answer, reasoning included; the context's end may come first."
    )
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)] | None = Field(
        None, description="As in chat completions, in this API's flat form."
    )
    tool_choice: Annotated[
        Any, BeforeValidator(_as_choice), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
    ] = Field(None, description="As in chat completions; `allowed_tools` offers the model those alone.")
    parallel_tool_calls: bool | None = Field(None, description="As in chat completions.")
    text: TextConfig | None = Field(None, description="`text.format`: the form of the answer.")
    reasoning: ReasoningConfig | None = Field(None, description="What a model thinks comes as items, in plain text.")
    top_logprobs: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Alternatives shown with each token; any number turns logprobs on."
    )
    include: (
        Annotated[
            list[
                Literal[
                    "message.output_text.logprobs",
                    "file_search_call.results",
                    "web_search_call.results",
                    "web_search_call.action.sources",
                    "message.input_image.image_url",
                    "computer_call_output.output.image_url",
                    "code_interpreter_call.outputs",
                    "reasoning.encrypted_content",
                ]
            ],
            Field(max_length=32),
        ]
        | None
    ) = Field(
        None,
        description="`message.output_text.logprobs` shows logprobs. The others are accepted: they add nothing where "
        "there are no built-in tools and no images, and reasoning is shown in plain text.",
    )
    truncation: Literal["disabled", "auto"] | None = Field(
        None,
        description="auto: what is too long loses its middle, not its system message or last question.",
    )
    max_tool_calls: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Of built-in tools, which there are none of; said back."
    )
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = Field(None, description="Said back.")
    user: Annotated[str, Field(max_length=MAX_NAME)] | None = Field(None, description="Said back.")
    safety_identifier: Annotated[str, Field(max_length=MAX_NAME)] | None = Field(None, description="Said back.")
    prompt_cache_key: Annotated[str, Field(max_length=MAX_NAME)] | None = Field(
        None, description="Said back; every prompt is cached."
    )

    @property
    def wants_logprobs(self) -> bool:
        return self.top_logprobs is not None or "message.output_text.logprobs" in (self.include or ())
