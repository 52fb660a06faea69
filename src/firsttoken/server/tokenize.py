"""`POST /tokenize` and `/detokenize`."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.server.answers import answer
from firsttoken.server.limits import MAX_TOKENS_COUNTED
from firsttoken.server.parsing import parse, read_object
from firsttoken.server.prompts import check_ids, ids_to_count
from firsttoken.server.schemas.tokenize import DetokenizeRequest, TokenizeChat, TokenizeText
from firsttoken.server.service import Service
from firsttoken.server.turn import template_options
from firsttoken.server.unsupported import TOKENIZE


async def tokenize(service: Service, request: Request) -> Response:
    """A text, or messages as the chat endpoint would render them."""
    info = service.info()
    json_body = await read_object(request)
    schema: type[TokenizeChat | TokenizeText] = TokenizeChat if "messages" in json_body.fields else TokenizeText
    parsed = await parse(schema, json_body, TOKENIZE, strict_fields=service.config.strict_fields)
    body = parsed.body
    service.check_model(body.model, info)
    limit = max(info.max_model_len, MAX_TOKENS_COUNTED)
    if isinstance(body, TokenizeText):
        special = body.add_special_tokens is not False
        encode = partial(service.tokenizer.encode, body.prompt, add_special_tokens=special, limit=limit)
    else:
        options = template_options(service, body)
        messages = [message.for_template() for message in body.messages]
        encode = partial(service.tokenizer.encode_chat, messages, limit=limit, **options)

    def work() -> bytes:
        ids = ids_to_count(encode, limit)
        strings = [service.tokenizer.token_text(token_id) for token_id in ids] if body.return_token_strs else None
        content = {"count": len(ids), "max_model_len": info.max_model_len, "tokens": ids, "token_strs": strings}
        return msgspec.json.encode(content)

    return answer(await asyncio.to_thread(work), parsed.headers)


async def detokenize(service: Service, request: Request) -> Response:
    info = service.info()
    parsed = await parse(DetokenizeRequest, await read_object(request), {}, strict_fields=service.config.strict_fields)
    service.check_model(parsed.body.model, info)
    tokens = parsed.body.tokens

    def work() -> bytes:
        check_ids(tokens, info, "tokens")
        return msgspec.json.encode({"prompt": service.tokenizer.decode(tokens, skip_special_tokens=False)})

    return answer(await asyncio.to_thread(work), parsed.headers)
