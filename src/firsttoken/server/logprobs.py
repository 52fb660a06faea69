"""Log-probabilities in OpenAI's two forms."""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import Any

from firsttoken.server.choice import TokenEntry
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import TokenLogprob

_FLOOR = -9999.0  # JSON has no infinity


def _finite(logprob: float) -> float:
    return max(logprob, _FLOOR)


class TokenNames:
    """How a token is written. Bytes that are not whole characters are escaped, so no two tokens look alike or empty."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False, prefix: str = "") -> None:
        self._table = tokenizer.all_bytes
        self._as_ids = as_ids
        self._prefix = prefix

    def of(self, token_id: int, data: bytes | None = None) -> str:
        if self._as_ids:
            return f"token_id:{token_id}"
        data = data or self.data(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return self._prefix + "".join(f"\\x{byte:02x}" for byte in data)

    def data(self, token_id: int) -> bytes:
        return self._table[token_id]


def chat_logprobs(entries: list[TokenEntry], names: TokenNames) -> dict[str, Any]:
    """{"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}."""
    content: list[dict[str, Any]] = []
    for entry in entries:
        if entry.logprob is None:
            continue
        top = [
            {"token": names.of(token_id), "logprob": _finite(logprob), "bytes": list(names.data(token_id))}
            for token_id, logprob in entry.logprob.top
        ]
        content.append(
            {
                "token": names.of(entry.token_id, entry.data),
                "logprob": _finite(entry.logprob.logprob),
                "bytes": list(entry.data),
                "top_logprobs": top,
            }
        )
    return {"content": content, "refusal": None}


def prompt_logprobs_object(
    logprobs: list[TokenLogprob | None] | None, count: int, names: TokenNames
) -> list[dict[str, Any] | None] | None:
    """vLLM's form: for each token of the prompt {id: {logprob, rank, decoded_token}} of itself and the likeliest."""
    if logprobs is None:
        return None
    return [None if each is None else _scores(each, count, names) for each in logprobs]


def _scores(logprob: TokenLogprob, count: int, names: TokenNames) -> dict[str, Any]:
    ranked = [(logprob.token_id, logprob.logprob, logprob.rank)]
    others = enumerate(logprob.top[:count], 1)
    ranked += [(token_id, value, rank) for rank, (token_id, value) in others if token_id != logprob.token_id]
    return {
        str(token_id): {"logprob": _finite(value), "rank": rank, "decoded_token": names.of(token_id)}
        for token_id, value, rank in ranked
    }


class CompletionLogprobs:
    """{"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets go on from piece to piece."""

    def __init__(self, names: TokenNames) -> None:
        self._names = names
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def take(self, entries: list[TokenEntry]) -> dict[str, Any]:
        tokens: list[str] = []
        token_logprobs: list[float | None] = []
        top_logprobs: list[dict[str, float] | None] = []
        text_offset: list[int] = []
        for entry in entries:
            name = self._names.of(entry.token_id, entry.data)
            tokens.append(name)
            text_offset.append(self._offset)
            self._offset += len(self._decoder.decode(entry.data))
            if entry.logprob is None:
                token_logprobs.append(None)
                top_logprobs.append(None)
                continue
            token_logprobs.append(_finite(entry.logprob.logprob))
            top = {self._names.of(token_id): _finite(logprob) for token_id, logprob in entry.logprob.top}
            top.setdefault(name, _finite(entry.logprob.logprob))
            top_logprobs.append(top)
        return {
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        }
