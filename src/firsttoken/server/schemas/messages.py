"""`POST /v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from firsttoken.server.limits import MAX_MESSAGES, MAX_NAME, MAX_PARTS, MAX_TOOLS
from firsttoken.server.schemas.sampling import Fields, Inside, Name, SamplingFields, Stops, TokenCount, WrongField
from firsttoken.server.unsupported import MESSAGES_OUTPUT, MESSAGES_THINKING, MESSAGES_TOOL

# What a block of each kind must have.
_BLOCKS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "redacted_thinking": {},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
}
_ROLE_BLOCKS = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}


def _check_blocks(blocks: Any, kinds: tuple[str, ...]) -> None:
    if not isinstance(blocks, list):
        raise ValueError("expected a text or a list of blocks")
    if len(blocks) > MAX_PARTS:
        raise ValueError(f"expected at most {MAX_PARTS} blocks, but got {len(blocks)}")
    for place, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in kinds:
            shown = f"'{kind[:40]}'" if isinstance(kind, str) else "none"
            raise ValueError(f"block {place} has the type {shown}, where this server takes {', '.join(kinds)}")
        for name, form in _BLOCKS[kind].items():
            value = block.get(name)
            is_name = name in ("id", "name", "tool_use_id")
            if not isinstance(value, form) or (is_name and not 0 < len(str(value)) <= MAX_NAME):
                raise ValueError(f"block {place}, of type '{kind}', needs a proper `{name}`")
        if kind == "tool_result" and not isinstance(block.get("content"), str | None):
            _check_blocks(block["content"], ("text",))


def _as_custom(value: Any) -> Any:
    if isinstance(value, str) and value != "custom":
        raise ValueError(f"'{value[:40]}' is not a tool of this server; it takes tools that the client runs")
    return value


def _as_system(value: Any) -> Any:
    if not isinstance(value, str | None):
        _check_blocks(value, ("text",))
    return value


_TEXT_OR_BLOCKS = [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]
Blocks = Annotated[Any, WithJsonSchema({"anyOf": _TEXT_OR_BLOCKS})]
BlocksOrNone = Annotated[Any, WithJsonSchema({"anyOf": [*_TEXT_OR_BLOCKS, {"type": "null"}]})]


class TurnMessage(Fields):
    """One turn. `content` is text or a list of blocks: text and tool_result of a user; text, tool_use and thinking of
    an assistant; text of a system. Images and documents are refused. An assistant's text at the end is gone on with.
    """

    role: Literal["user", "assistant", "system"]
    content: Blocks

    @model_validator(mode="after")
    def _has_blocks_of_its_role(self) -> TurnMessage:
        if not isinstance(self.content, str):
            try:
                _check_blocks(self.content, _ROLE_BLOCKS[self.role])
            except ValueError as error:
                raise WrongField("content", str(error)) from None
        return self


class ClientTool(Fields):
    """A tool that the client runs. Anthropic's own tools (web_search, bash, ...) are refused."""

    type: Annotated[Literal["custom"] | None, BeforeValidator(_as_custom)] = None
    name: Name
    description: str | None = None
    input_schema: dict[str, Any] = Field(description="JSON schema of the input.")
    strict: bool | None = Field(None, description="As in chat completions.")


class ToolChoice(Fields):
    """`any` must use one of the tools, `tool` the one named."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = Field(None, description="Of the one tool to use, with `type: tool`.")
    disable_parallel_tool_use: bool | None = Field(None, description="One use at most.")

    @model_validator(mode="after")
    def _names_its_tool(self) -> ToolChoice:
        if self.type == "tool" and self.name is None:
            raise WrongField("name", "a choice of type 'tool' needs it")
        return self


class Thinking(Fields):
    """`disabled` turns thinking off where the model has a switch for it; the others need a model that thinks."""

    type: Literal["disabled", "enabled", "adaptive"]


class JsonFormat(Fields):
    """As a strict `json_schema` of chat completions."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """How the answer is to be."""

    format: JsonFormat | None = Field(None, description="The form of the answer's text.")


class PromptFields(Fields):
    """What becomes the prompt; tokens are counted of the same."""

    INSIDE: ClassVar[Inside] = (
        ("messages", TurnMessage, {}),
        ("tools", ClientTool, MESSAGES_TOOL),
        ("tool_choice", ToolChoice, {}),
        ("thinking", Thinking, MESSAGES_THINKING),
        ("output_config", OutputConfig, MESSAGES_OUTPUT),
    )

    messages: Annotated[list[TurnMessage], Field(min_length=1, max_length=MAX_MESSAGES)] = Field(
        description="The turns so far. Two of one role may follow each other."
    )
    system: Annotated[BlocksOrNone, BeforeValidator(_as_system)] = Field(None, description="A text, or text blocks.")
    tools: Annotated[list[ClientTool], Field(max_length=MAX_TOOLS)] | None = Field(
        None, description="As in chat completions, in this API's form."
    )
    tool_choice: ToolChoice | None = Field(None, description="`auto` where it is left out.")
    thinking: Thinking | None = Field(None, description="What a model thinks comes as blocks.")
    output_config: OutputConfig | None = Field(
        None, description="`output_config.format`: the form that the answer must have."
    )


class CountTokensRequest(PromptFields):
    """The same prompt as that of a `MessagesRequest`."""

    model: Name | None = Field(None, description="One of the names of `/v1/models`.")


class MessagesRequest(SamplingFields, PromptFields):
    """Anthropic's fields, and those that a chat samples with."""

    max_tokens: TokenCount = Field(description="The most tokens of answer; the context's end may come first.")
    stop_sequences: Stops | None = Field(None, description="As `stop` of chat completions; the answer names its own.")
    stop: Stops | None = Field(None, description="Refused: here it is called `stop_sequences`.")

    @model_validator(mode="after")
    def _has_one_list_of_stops(self) -> MessagesRequest:
        if self.stop is not None:
            raise WrongField("stop", "here it is called `stop_sequences`")
        return self
