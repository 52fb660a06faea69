"""What clients get of `/v1/responses`, as `answers` has it for the other routes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import RootModel

from firsttoken.server.schemas.answers import AnswerFields, ChatToken

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(AnswerFields):
    type: Literal["output_text"]
    text: str
    annotations: list[None]  # always empty
    logprobs: list[ChatToken]


class OutputMessage(AnswerFields):
    id: str
    type: Literal["message"]
    status: Status
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningText(AnswerFields):
    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(AnswerFields):
    id: str
    type: Literal["reasoning"]
    status: Status
    summary: list[None]  # always empty
    content: list[ReasoningText]


class OutputCall(AnswerFields):
    id: str
    type: Literal["function_call"]
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = OutputMessage | OutputReasoning | OutputCall


class InputTokensDetails(AnswerFields):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(AnswerFields):
    reasoning_tokens: int


class ResponseUsage(AnswerFields):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(AnswerFields):
    code: Literal["server_error"]
    message: str


class IncompleteDetails(AnswerFields):
    reason: Literal["max_output_tokens"]


class ResponseReasoning(AnswerFields):
    effort: str | None
    summary: None


class ResponseText(AnswerFields):
    format: dict[str, Any]
    verbosity: Literal["medium"]


class ResponseObject(AnswerFields):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    completed_at: int | None
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None
    prompt_cache_key: str | None
    reasoning: ResponseReasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float
    text: ResponseText
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None


class Numbered(AnswerFields):
    sequence_number: int  # from 0


class LifeEvent(Numbered):
    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"
    ]
    response: ResponseObject


class ItemEvent(Numbered):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class Placed(Numbered):
    item_id: str
    output_index: int


class PartEvent(Placed):
    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: int
    part: OutputText | ReasoningText


class TextDeltaEvent(Placed):
    type: Literal["response.output_text.delta"]
    content_index: int
    delta: str
    logprobs: list[ChatToken]


class TextDoneEvent(Placed):
    type: Literal["response.output_text.done"]
    content_index: int
    text: str
    logprobs: list[ChatToken]


class ReasoningDeltaEvent(Placed):
    type: Literal["response.reasoning_text.delta"]
    content_index: int
    delta: str


class ReasoningDoneEvent(Placed):
    type: Literal["response.reasoning_text.done"]
    content_index: int
    text: str


class CallDeltaEvent(Placed):
    type: Literal["response.function_call_arguments.delta"]
    delta: str


class CallDoneEvent(Placed):
    type: Literal["response.function_call_arguments.done"]
    name: str
    arguments: str


class ErrorEvent(Numbered):
    type: Literal["error"]
    code: str | None
    message: str
    param: str | None


class ResponseEvent(
    RootModel[
        LifeEvent
        | ItemEvent
        | PartEvent
        | TextDeltaEvent
        | TextDoneEvent
        | ReasoningDeltaEvent
        | ReasoningDoneEvent
        | CallDeltaEvent
        | CallDoneEvent
        | ErrorEvent
    ]
):
    """One event; its name on the `event:` line is its type."""
