"""One assistant turn, whichever API asked for it: from a checked chat request to a generation that runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from firsttoken.config import Truncation
from firsttoken.server.answer_grammar import Thoughts
from firsttoken.server.answers import truncation_header
from firsttoken.server.choice import Choice
from firsttoken.server.error_handlers import wrong_value
from firsttoken.server.generation import Generation, Run
from firsttoken.server.limits import MAX_TOKENS_COUNTED
from firsttoken.server.prompts import Encoded, Room, ids_to_count
from firsttoken.server.sampling import check_bounds, check_scores, sampling_params, text_options
from firsttoken.server.schemas.chat import ChatFields, ChatRequest
from firsttoken.server.service import Service
from firsttoken.server.sse import Identity
from firsttoken.server.structure import Structure, check_size, grammar_named, schema_text, structure_of
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import EngineInfo, GenerateRequest

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message", "limit", "self"})
_MAX_NAME = 100  # characters of a name that are said back
_END = 8  # tokens; a prompt that opens the model's thoughts ends with the tag and a line end


@dataclass(frozen=True, slots=True)
class Turn:
    """What the engine has accepted; every way of answering starts from here."""

    generation: Generation
    identity: Identity
    headers: dict[str, str]

    @property
    def prompt_ids(self) -> list[int]:
        return self.generation.runs[0].request.prompt_token_ids


async def start(
    service: Service,
    body: ChatRequest,
    info: EngineInfo,
    *,
    prefix: str,
    arrival: float,
    truncate: Truncation | None = None,
    length_must_fit: bool = True,
) -> Turn:
    """Returns once the engine has accepted the request; `prefix` begins the answer's id.

    `truncate` stands above the server's own setting. With `length_must_fit` a prompt that leaves less than the length
    asked for is refused; without it the answer may end earlier, at the context's end.
    Raises InvalidRequest, ModelNotFound, QueueFull or Unavailable.
    """
    model = service.check_model(body.model, info)
    n = check_bounds(body, service.config, logprobs=body.top_logprobs, field="top_logprobs")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    wanted = await structure_of(body, service.config)
    sampling = sampling_params(
        body,
        info,
        service.tokenizer,
        max_tokens=body.answer_tokens,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
    )
    room = Room(
        context=info.max_model_len,
        wanted=body.answer_tokens if length_must_fit else None,
        kind="messages",
        keep=body.truncate_prompt_tokens,
        truncate=truncate or service.config.truncate,
    )
    encoded = await _encode(service, body, room)
    check_scores(len(encoded.ids), body.prompt_logprobs, "prompt_logprobs")
    end = service.tokenizer.decode(encoded.ids[-_END:], skip_special_tokens=False)
    thoughts = service.dialect.thoughts_in(body, end)
    structure = _around(service, body, thoughts, wanted)
    sampling = replace(sampling, grammar=structure.grammar if structure else None)
    identity = service.identity(prefix, model, info)
    work = GenerateRequest(
        request_id=identity.response_id,
        prompt_token_ids=encoded.ids,
        sampling=sampling,
        n=n,
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        arrival=arrival,
    )
    parsers = [service.dialect.parser(body, thoughts) for _ in range(n)]
    options = text_options(body)
    if parsers[0] is not None and service.dialect.hidden:
        options = replace(options, skip_special_tokens=False)
    choices = [
        Choice(i, service.tokenizer, options, wants_logprobs=logprobs is not None, parser=parser)
        for i, parser in enumerate(parsers)
    ]
    generation = Generation(service.backend, [Run(request=work, choices=choices)], streams=bool(body.stream))
    with grammar_named(structure):
        await generation.start()
    return Turn(generation, identity, truncation_header(encoded.dropped))


def _around(service: Service, body: ChatRequest, thoughts: Thoughts, wanted: Structure | None) -> Structure | None:
    """What the whole answer keeps to, its thoughts and calls too. Raises InvalidRequest."""
    calls = service.dialect.call_rules(body, structured=wanted is not None)
    if calls is not None:
        schemas = [
            schema_text(tool.function.parameters or {}, f"tools[{place}].function.parameters", service.config)
            for place, tool in enumerate(body.offered_tools)
        ]
        check_size("".join(schemas), "tools", service.config)
    grammar = service.dialect.grammar(calls, thoughts, wanted.grammar if wanted else None)
    if grammar is None:
        return None
    return Structure(grammar, "tools" if wanted is None or (calls is not None and calls.must) else wanted.field)


async def count_tokens(service: Service, body: ChatFields, info: EngineInfo) -> int:
    """Of the prompt alone, which may be longer than the context. Raises InvalidRequest."""
    limit = max(info.max_model_len, MAX_TOKENS_COUNTED)
    messages = [message.for_template() for message in body.messages]
    encode = partial(service.tokenizer.encode_chat, messages, limit=limit, **template_options(service, body))
    return len(await asyncio.to_thread(ids_to_count, encode, limit))


async def _encode(service: Service, body: ChatRequest, room: Room) -> Encoded:
    messages = [message.for_template() for message in body.messages]
    return await service.prompts.chat(messages, room, **template_options(service, body))


def template_options(service: Service, body: ChatFields) -> dict[str, Any]:
    """What a chat's template is told besides the messages. Raises InvalidRequest for what it could not print."""
    service.dialect.check_tools(body)
    return {
        "tools": [tool.for_template() for tool in body.offered_tools],
        "add_generation_prompt": body.opens_a_turn,
        "continue_final_message": bool(body.continue_final_message),
        **template_variables(body.chat_template_kwargs, service.tokenizer),
    }


def template_variables(given: dict[str, Any] | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """What `chat_template_kwargs` sets. Raises InvalidRequest for names that the model's template does not read.

    Not to think is what every model without such a switch does anyway.
    """
    variables: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name in _RESERVED:
            reason = f"'{name[:_MAX_NAME]}' is not a template's variable to set; use the field itself"
        elif name in tokenizer.template_variables:
            variables[name] = value
            continue
        elif value is None or (name == "enable_thinking" and value is False):
            continue
        else:
            reason = f"this model's chat template reads no '{name[:_MAX_NAME]}'; leave it out"
        raise wrong_value("chat_template_kwargs", reason)
    return variables
