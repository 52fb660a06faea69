"""`POST /v1/completions`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.errors import InvalidRequest
from firsttoken.server.answers import ClientGone, answer, truncation_header
from firsttoken.server.choice import Choice, TextOptions, TokenEntry
from firsttoken.server.generation import Generation, Run
from firsttoken.server.limits import MAX_CHOICES
from firsttoken.server.logprobs import CompletionLogprobs, TokenNames
from firsttoken.server.parsing import parse, read_object
from firsttoken.server.prompts import Encoded, Room
from firsttoken.server.sampling import check_counts, sampling_params
from firsttoken.server.schemas.completions import CompletionRequest, Prompt
from firsttoken.server.service import Service
from firsttoken.server.sse import CompletionChunks, EventStream, Identity, usage_object
from firsttoken.server.unsupported import COMPLETIONS
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo, GenerateRequest, SamplingParams, TokenLogprob

_DEFAULT_MAX_TOKENS = 16  # OpenAI's, for this endpoint


async def completions(service: Service, request: Request) -> Response:
    arrival = time.monotonic()
    info = service.info()
    json_body = await read_object(request)
    parsed = await parse(CompletionRequest, json_body, COMPLETIONS, strict_fields=service.config.strict_fields)
    body = parsed.body
    model = service.check_model(body.model, info)
    n = check_counts(body, service.config, logprobs=body.logprobs, field="logprobs")
    if body.best_of is not None and body.best_of != n:
        raise InvalidRequest(
            "'best_of' is not supported by this server unless it equals 'n'; leave it out.",
            param="best_of",
            code="unsupported_parameter",
        )
    if len(body.prompt) * n > MAX_CHOICES:
        raise InvalidRequest(
            f"Invalid 'n': {len(body.prompt)} prompts with {n} choices each are more than {MAX_CHOICES} in all.",
            param="n",
            code="invalid_value",
        )
    encoded = [await _encode(service, body, prompt, info) for prompt in body.prompt]
    identity = service.identity("cmpl", model, info)
    runs = [
        _Builder(service.tokenizer, body, n).run(f"{identity.response_id}-{i}", i, encoded[i], info, arrival)
        for i in range(len(encoded))
    ]
    generation = Generation(service.backend, runs, streams=bool(body.stream))
    await generation.start()
    headers = parsed.headers | truncation_header(sum(prompt.dropped for prompt in encoded))
    return await _respond(service, request, body, generation, identity, headers)


async def _encode(service: Service, body: CompletionRequest, prompt: Prompt, info: EngineInfo) -> Encoded:
    room = Room(context=info.max_model_len, wanted=body.max_tokens, kind="prompt", keep=body.truncate_prompt_tokens)
    if isinstance(prompt, str):
        special = body.add_special_tokens is not False
        return await service.prompts.text(prompt, room, info, add_special_tokens=special)
    return service.prompts.ids(prompt, room, info)


class _Builder:
    """Makes the run of one prompt."""

    def __init__(self, tokenizer: Tokenizer, body: CompletionRequest, n: int) -> None:
        self._tokenizer = tokenizer
        self._body = body
        self._n = n

    def run(self, request_id: str, place: int, prompt: Encoded, info: EngineInfo, arrival: float) -> Run:
        body = self._body
        generates = body.max_tokens != 0
        prompt_logprobs = body.logprobs if body.echo else None
        sampling = self._sampling(info, len(prompt.ids), prompt_logprobs)
        options = TextOptions(
            stop=body.stop or (),
            min_tokens=sampling.min_tokens,
            include_stop=bool(body.include_stop_str_in_output),
            skip_special_tokens=body.skip_special_tokens is not False,
            generates=generates,
        )
        echo = self._tokenizer.decode(prompt.ids) if body.echo else ""
        choices = [
            Choice(
                place * self._n + i,
                self._tokenizer,
                options,
                wants_logprobs=body.logprobs is not None,
                echo=echo,
                awaits_prompt=prompt_logprobs is not None,
            )
            for i in range(self._n)
        ]
        if not generates and prompt_logprobs is None:
            for choice in choices:
                choice.end_unstarted()
        work = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=prompt.ids,
            sampling=sampling,
            n=self._n,
            priority=body.priority or 0,
            cache_salt=body.cache_salt,
            arrival=arrival,
        )
        return Run(request=work, choices=choices, prompt_entries=self._entries_of(prompt.ids))

    def _sampling(self, info: EngineInfo, prompt_tokens: int, prompt_logprobs: int | None) -> SamplingParams:
        """A prompt's log-probabilities come with a first token, so one is generated even where none is wanted."""
        body = self._body
        wanted = body.max_tokens
        if wanted is None:
            least = max(_DEFAULT_MAX_TOKENS, body.min_tokens or 0)
            wanted = min(least, info.max_model_len - prompt_tokens)
        return sampling_params(
            body, info, max_tokens=max(1, wanted), logprobs=body.logprobs, prompt_logprobs=prompt_logprobs
        )

    def _entries_of(self, ids: Sequence[int]) -> Any:
        table = self._tokenizer.shown_bytes

        def entries(logprobs: list[TokenLogprob | None]) -> list[TokenEntry]:
            return [
                TokenEntry(token_id, table[token_id], logprob) for token_id, logprob in zip(ids, logprobs, strict=True)
            ]

        return entries if self._body.echo and self._body.logprobs is not None else None


async def _respond(
    service: Service,
    request: Request,
    body: CompletionRequest,
    generation: Generation,
    identity: Identity,
    headers: dict[str, str],
) -> Response:
    names = TokenNames(service.tokenizer, as_ids=bool(body.return_tokens_as_token_ids), prefix="bytes:")
    offsets = {choice.index: CompletionLogprobs(names) for choice in generation.choices}

    def format_logprobs(choice: Choice, entries: list[TokenEntry]) -> dict[str, Any]:
        return offsets[choice.index].take(entries)

    wants_logprobs = body.logprobs is not None
    if body.stream:
        chunks = CompletionChunks(
            identity, include_usage=body.include_usage, logprobs=format_logprobs if wants_logprobs else None
        )
        return EventStream(generation, chunks, headers)
    if not await generation.finish(request.receive):
        return ClientGone()
    choices: list[dict[str, Any]] = []
    for choice in generation.choices:
        piece = choice.take()
        choices.append(
            {
                "index": choice.index,
                "text": piece.text,
                "logprobs": format_logprobs(choice, piece.entries) if wants_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
        )
    fields = identity.fields("text_completion")
    return answer(msgspec.json.encode({**fields, "choices": choices, "usage": usage_object(generation.usage)}), headers)
