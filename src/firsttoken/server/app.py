"""The API as one ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.config import ServerConfig
from firsttoken.server import error_handlers, system
from firsttoken.server.auth import BearerAuth
from firsttoken.server.backend import Backend
from firsttoken.server.chat import chat_completions
from firsttoken.server.completions import completions
from firsttoken.server.limits import BodyLimit, HeaderLimit
from firsttoken.server.metrics import metrics
from firsttoken.server.request_id import RequestId
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.schemas.completions import CompletionRequest
from firsttoken.server.schemas.tokenize import DetokenizeRequest, TokenizeChat, TokenizeText
from firsttoken.server.service import Service
from firsttoken.server.tokenize import detokenize, tokenize
from firsttoken.tokenizer import Tokenizer
from firsttoken.version import __version__

_SCHEMAS = (ChatRequest, CompletionRequest, TokenizeText, TokenizeChat, DetokenizeRequest)


def create_app(config: ServerConfig, backend: Backend, tokenizer: Tokenizer) -> FastAPI:
    """The whole API over an engine, wherever that runs. It needs no start-up of its own."""
    app = FastAPI(title="firsttoken", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    service = Service(config, backend, tokenizer)
    _add_probes(app, service)
    _add_api(app, service)
    error_handlers.install(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, max_bytes=config.max_body_bytes)
    if config.api_keys:
        app.add_middleware(BearerAuth, keys=config.api_keys)
    app.add_middleware(HeaderLimit)
    app.add_middleware(RequestId)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's own way to extend the document
    return app


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.head("/health", include_in_schema=False)  # what many monitors ask
    @app.get("/health", summary="200 while the engine can answer")
    async def health() -> Response:
        return system.health(service)

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", summary="200 while new requests are taken")
    async def ready() -> Response:
        return system.ready(service)

    @app.api_route("/ping", methods=["GET", "POST"], summary="As /health", include_in_schema=False)
    async def ping() -> Response:
        return system.health(service)

    @app.get("/version")
    async def version() -> Response:
        return system.version()

    @app.get("/metrics", summary="Prometheus' text form")
    async def read_metrics() -> Response:
        return await metrics(service)


def _add_api(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def list_models() -> Response:
        return system.models(service)

    @app.get("/v1/models/{name:path}")
    async def retrieve_model(name: str) -> Response:
        return system.model(service, name)

    @app.post("/v1/chat/completions", openapi_extra=_body(ChatRequest.__name__))
    async def create_chat_completion(request: Request) -> Response:
        return await chat_completions(service, request)

    @app.post("/v1/completions", openapi_extra=_body(CompletionRequest.__name__))
    async def create_completion(request: Request) -> Response:
        return await completions(service, request)

    @app.post("/tokenize", openapi_extra=_body(TokenizeText.__name__, TokenizeChat.__name__))
    async def create_tokens(request: Request) -> Response:
        return await tokenize(service, request)

    @app.post("/detokenize", openapi_extra=_body(DetokenizeRequest.__name__))
    async def create_text(request: Request) -> Response:
        return await detokenize(service, request)


def _body(*names: str) -> dict[str, Any]:
    """The body is parsed by hand (for its limits and its error sentences), so the document is told of it here."""
    forms = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _openapi(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, schemas = models_json_schema(
        [(schema, "validation") for schema in _SCHEMAS], ref_template="#/components/schemas/{model}"
    )
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
    return document
