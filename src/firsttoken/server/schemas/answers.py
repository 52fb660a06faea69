"""What clients get, as `/openapi.json` and its tests have it. The bytes are made elsewhere, by hand, for speed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class AnswerFields(BaseModel):
    """Exact: a field that is not named here is never sent."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(AnswerFields):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None  # the field at fault
    code: str | None


class Error(AnswerFields):
    error: ErrorDetail


class PromptTokensDetails(AnswerFields):
    cached_tokens: int


class CompletionTokensDetails(AnswerFields):
    reasoning_tokens: int


class Usage(AnswerFields):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class AnsweredFunction(AnswerFields):
    name: str
    arguments: str


class AnsweredToolCall(AnswerFields):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnswerMessage(AnswerFields):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ""
    reasoning: str = ""
    tool_calls: list[AnsweredToolCall] = []


class Alternative(AnswerFields):
    token: str
    logprob: float
    bytes: list[int]


class ChatToken(Alternative):
    top_logprobs: list[Alternative]


class ChatLogprobs(AnswerFields):
    content: list[ChatToken]
    refusal: None


ChatFinishReason = Literal["stop", "length", "tool_calls"]


class PromptScore(AnswerFields):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptScore] | None]  # by token id; None for the first token


class ChatChoice(AnswerFields):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    token_ids: list[int] = []


class Identified(AnswerFields):
    id: str
    created: int
    model: str
    system_fingerprint: str


class ChatCompletion(Identified):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs = []
    prompt_token_ids: list[int] = []


class FunctionDelta(AnswerFields):
    name: str = ""
    arguments: str


class ToolCallChunk(AnswerFields):
    index: int
    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionDelta


class Delta(AnswerFields):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    reasoning_content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallChunk] = []


class ChatChunkChoice(AnswerFields):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    token_ids: list[int] = []


class ChatCompletionChunk(Identified):
    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] = []  # of the first chunk


class CompletionLogprobs(AnswerFields):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(AnswerFields):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]
    prompt_logprobs: PromptLogprobs = []
    prompt_token_ids: list[int] = []
    token_ids: list[int] = []


class CompletionChunkChoice(AnswerFields):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    prompt_token_ids: list[int] = []  # of each choice's first chunk
    token_ids: list[int] = []


class Completion(Identified):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunk(Identified):
    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None


class Model(AnswerFields):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int
    default_sampling_params: dict[str, float]
    max_num_seqs: int
    weights: str
    device: str
    weight_bytes: int
    kv_bytes_per_token: int


class ModelList(AnswerFields):
    object: Literal["list"]
    data: list[Model]


class Tokens(AnswerFields):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(AnswerFields):
    prompt: str


class Health(AnswerFields):
    status: Literal["loading", "ready", "draining", "hung", "dead"]
    phase: str = ""
    fraction: float = 0.0


class Readiness(AnswerFields):
    status: Literal["loading", "ready", "draining", "hung", "dead"]


class Version(AnswerFields):
    version: str
