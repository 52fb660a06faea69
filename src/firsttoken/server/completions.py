"""`POST /v1/completions`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.errors import InvalidRequest
from firsttoken.server.answers import ClientGone, answer, truncation_header
from firsttoken.server.choice import Choice, TokenEntry
from firsttoken.server.error_handlers import wrong_value
from firsttoken.server.generation import Generation, PromptEntries, Run
from firsttoken.server.limits import MAX_CHOICES
from firsttoken.server.logprobs import CompletionLogprobs, TokenNames, prompt_logprobs_object
from firsttoken.server.parsing import parse, read_object
from firsttoken.server.prompts import Encoded, Room
from firsttoken.server.sampling import check_bounds, check_scores, sampling_params, text_options
from firsttoken.server.schemas.completions import CompletionRequest, Prompt
from firsttoken.server.service import Service
from firsttoken.server.sse import CompletionChunks, EventStream, Identity, usage_object
from firsttoken.server.structure import grammar_named, structure_of
from firsttoken.server.unsupported import COMPLETIONS
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo, GenerateRequest, Grammar, SamplingParams, TokenLogprob

_DEFAULT_MAX_TOKENS = 16  # OpenAI's, for this endpoint


async def completions(service: Service, request: Request) -> Response:
    arrival = time.monotonic()
    info = service.info()
    json_body = await read_object(request)
    parsed = await parse(CompletionRequest, json_body, COMPLETIONS, strict_fields=service.config.strict_fields)
    body = parsed.body
    model = service.check_model(body.model, info)
    n = check_bounds(body, service.config, logprobs=body.logprobs, field="logprobs")
    if body.best_of is not None and body.best_of != n:
        raise InvalidRequest(
            "'best_of' is not supported by this server unless it equals 'n'; leave it out.",
            param="best_of",
            code="unsupported_parameter",
        )
    if len(body.prompt) * n > MAX_CHOICES:
        raise wrong_value("n", f"{len(body.prompt)} prompts with {n} choices each are more than {MAX_CHOICES} in all")
    encoded = [await _encode(service, body, prompt, info) for prompt in body.prompt]
    identity = service.identity("cmpl-", model, info)
    structure = await structure_of(body, service.config)
    builder = _Builder(service.tokenizer, body, n, structure.grammar if structure else None)
    runs = [builder.run(f"{identity.response_id}-{i}", i, prompt, info, arrival) for i, prompt in enumerate(encoded)]
    generation = Generation(service.backend, runs, streams=bool(body.stream))
    with grammar_named(structure):
        await generation.start()
    headers = parsed.headers | truncation_header(sum(prompt.dropped for prompt in encoded))
    return await _respond(service, request, body, generation, identity, headers)


async def _encode(service: Service, body: CompletionRequest, prompt: Prompt, info: EngineInfo) -> Encoded:
    room = Room(
        context=info.max_model_len,
        wanted=body.max_tokens,
        kind="prompt",
        keep=body.truncate_prompt_tokens,
        truncate=service.config.truncate,
    )
    if isinstance(prompt, str):
        special = body.add_special_tokens is not False
        return await service.prompts.text(prompt, room, info, add_special_tokens=special)
    return service.prompts.ids(prompt, room, info)


class _Builder:
    """Makes the run of each prompt."""

    def __init__(self, tokenizer: Tokenizer, body: CompletionRequest, n: int, grammar: Grammar | None) -> None:
        self._tokenizer = tokenizer
        self._body = body
        self._n = n
        self._grammar = grammar
        self._options = text_options(body, generates=body.max_tokens != 0)

    def run(self, request_id: str, place: int, prompt: Encoded, info: EngineInfo, arrival: float) -> Run:
        body = self._body
        echoed = body.logprobs if body.echo else None
        check_scores(len(prompt.ids), echoed, "logprobs")
        check_scores(len(prompt.ids), body.prompt_logprobs, "prompt_logprobs")
        asked = [each for each in (echoed, body.prompt_logprobs) if each is not None]
        prompt_logprobs = max(asked) if asked else None
        sampling = self._sampling(info, len(prompt.ids), prompt_logprobs)
        echo = self._tokenizer.decode(prompt.ids) if body.echo else ""
        choices = [
            Choice(
                place * self._n + i,
                self._tokenizer,
                self._options,
                wants_logprobs=body.logprobs is not None,
                echo=echo,
                awaits_prompt=echoed is not None,
            )
            for i in range(self._n)
        ]
        if not self._options.generates and prompt_logprobs is None:
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
        entries = None if echoed is None else self._entries_of(prompt.ids, echoed)
        return Run(request=work, choices=choices, prompt_entries=entries)

    def _sampling(self, info: EngineInfo, prompt_tokens: int, prompt_logprobs: int | None) -> SamplingParams:
        """A prompt's log-probabilities come with a first token, so one is generated even where none is wanted."""
        body = self._body
        wanted = body.max_tokens
        if wanted is None:
            least = max(_DEFAULT_MAX_TOKENS, body.min_tokens or 0)
            wanted = min(least, info.max_model_len - prompt_tokens)
        return sampling_params(
            body,
            info,
            self._tokenizer,
            max_tokens=max(1, wanted),
            logprobs=body.logprobs,
            prompt_logprobs=prompt_logprobs,
            grammar=self._grammar,
        )

    def _entries_of(self, ids: Sequence[int], count: int) -> PromptEntries:
        table = self._tokenizer.shown_bytes

        def entries(logprobs: list[TokenLogprob | None]) -> list[TokenEntry]:
            return [
                TokenEntry(token_id, table[token_id], each and replace(each, top=each.top[:count]))
                for token_id, each in zip(ids, logprobs, strict=True)
            ]

        return entries


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
            identity,
            include_usage=body.include_usage,
            logprobs=format_logprobs if wants_logprobs else None,
            running=(lambda: generation.usage) if body.continuous_usage else None,
            prompts=_prompts_by_choice(generation) if body.return_token_ids else None,
        )
        return EventStream(generation, chunks, headers)
    if not await generation.finish(request.receive):
        return ClientGone()
    choices: list[dict[str, Any]] = []
    plain = TokenNames(service.tokenizer)
    for run, choice in generation.choices_with_runs:
        piece = choice.take()
        fields: dict[str, Any] = {
            "index": choice.index,
            "text": piece.text,
            "logprobs": format_logprobs(choice, piece.entries) if wants_logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if body.prompt_logprobs is not None:
            fields["prompt_logprobs"] = prompt_logprobs_object(run.prompt_logprobs, body.prompt_logprobs, plain)
        if body.return_token_ids:
            fields |= {"prompt_token_ids": run.request.prompt_token_ids, "token_ids": piece.token_ids}
        choices.append(fields)
    whole = {**identity.fields("text_completion"), "choices": choices, "usage": usage_object(generation.usage)}
    return answer(msgspec.json.encode(whole), headers)


def _prompts_by_choice(generation: Generation) -> dict[int, list[int]]:
    return {choice.index: run.request.prompt_token_ids for run, choice in generation.choices_with_runs}
