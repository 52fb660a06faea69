"""`POST /tokenize` and `/detokenize`, in vLLM's forms."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from firsttoken.server.schemas.chat import ChatFields
from firsttoken.server.schemas.sampling import Fields, Name


class TokenizeText(Fields):
    model: Name | None = Field(None, description="One of the names of `/v1/models`.")
    prompt: str = Field(description="The text.")
    add_special_tokens: bool | None = Field(None, description="As in text completions.")
    return_token_strs: bool | None = Field(None, description="Adds each token's text.")


class TokenizeChat(ChatFields):
    model: Name | None = Field(None, description="One of the names of `/v1/models`.")
    add_special_tokens: bool | None = Field(None, description="As in text completions.")
    return_token_strs: bool | None = Field(None, description="Adds each token's text.")


class DetokenizeRequest(Fields):
    model: Name | None = Field(None, description="One of the names of `/v1/models`.")
    tokens: list[Annotated[int, Field(ge=0)]] = Field(description="Their ids.")
