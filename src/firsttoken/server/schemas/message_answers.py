"""What clients get of `/v1/messages`, as `answers` has it for the other routes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import RootModel

from firsttoken.server.schemas.answers import AnswerFields


class MessageErrorDetail(AnswerFields):
    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "timeout_error",
        "api_error",
        "overloaded_error",
    ]
    message: str


class MessageError(AnswerFields):
    """Anthropic's error object."""

    type: Literal["error"]
    error: MessageErrorDetail
    request_id: str | None


class TextBlock(AnswerFields):
    type: Literal["text"]
    text: str


class ThinkingBlock(AnswerFields):
    type: Literal["thinking"]
    thinking: str
    signature: Literal[""]  # nothing is signed


class ToolUseBlock(AnswerFields):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(AnswerFields):
    input_tokens: int  # without those that were cached
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    service_tier: Literal["standard"]


class MessageStop(AnswerFields):
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"] | None
    stop_sequence: str | None


class MessageObject(MessageStop):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    usage: MessageUsage


class TokenCountObject(AnswerFields):
    input_tokens: int


class MessageStart(AnswerFields):
    type: Literal["message_start"]
    message: MessageObject


class Ping(AnswerFields):
    type: Literal["ping"]


class BlockStart(AnswerFields):
    type: Literal["content_block_start"]
    index: int
    content_block: AnswerBlock


class TextBlockDelta(AnswerFields):
    type: Literal["text_delta"]
    text: str


class ThinkingBlockDelta(AnswerFields):
    type: Literal["thinking_delta"]
    thinking: str


class InputDelta(AnswerFields):
    type: Literal["input_json_delta"]
    partial_json: str


class BlockDelta(AnswerFields):
    type: Literal["content_block_delta"]
    index: int
    delta: TextBlockDelta | ThinkingBlockDelta | InputDelta


class BlockStop(AnswerFields):
    type: Literal["content_block_stop"]
    index: int


class MessageDelta(AnswerFields):
    type: Literal["message_delta"]
    delta: MessageStop
    usage: MessageUsage


class MessageEnd(AnswerFields):
    type: Literal["message_stop"]


class MessageEvent(
    RootModel[MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageEnd | MessageError]
):
    """One event; its name on the `event:` line is its type."""
