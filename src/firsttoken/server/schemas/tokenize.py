"""`POST /tokenize` and `/detokenize`, in vLLM's forms."""

from __future__ import annotations

from firsttoken.server.schemas.chat import ChatFields
from firsttoken.server.schemas.sampling import Fields, Name


class TokenizeText(Fields):
    model: Name | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(ChatFields):
    model: Name | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Fields):
    model: Name | None = None
    tokens: list[int]
