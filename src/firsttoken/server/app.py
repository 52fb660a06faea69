"""The API as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI
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
from firsttoken.server.openapi import ANYWHERE, BODY, GENERATES, MODEL, Described
from firsttoken.server.request_id import RequestId
from firsttoken.server.schemas import answers
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.schemas.completions import CompletionRequest
from firsttoken.server.schemas.tokenize import DetokenizeRequest, TokenizeChat, TokenizeText
from firsttoken.server.service import Service
from firsttoken.server.tokenize import detokenize, tokenize
from firsttoken.tokenizer import Tokenizer
from firsttoken.version import __version__


def create_app(config: ServerConfig, backend: Backend, tokenizer: Tokenizer) -> FastAPI:
    """The whole API over an engine, wherever that runs. It needs no start-up of its own."""
    app = FastAPI(
        title="firsttoken",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=Response,  # each route makes its own
    )
    service = Service(config, backend, tokenizer)
    described = Described()
    _add_probes(app, service, described)
    _add_api(app, service, described)
    error_handlers.install(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, max_bytes=config.max_body_bytes)
    if config.api_keys:
        app.add_middleware(BearerAuth, keys=config.api_keys)
    app.add_middleware(HeaderLimit)
    app.add_middleware(RequestId)
    app.openapi = lambda: described.document(app)  # type: ignore[method-assign]  # FastAPI's own way to change it
    return app


def _add_probes(app: FastAPI, service: Service, described: Described) -> None:
    route = described.route
    health_answers = route(answers.Health, also={"503": answers.Health}, errors=ANYWHERE)

    @app.head("/health", include_in_schema=False)  # what many monitors ask
    @app.get("/health", summary="200 while the engine can answer", openapi_extra=health_answers)
    async def health() -> Response:
        return system.health(service)

    ready_answers = route(answers.Readiness, also={"503": answers.Readiness}, errors=ANYWHERE)

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", summary="200 while new requests are taken", openapi_extra=ready_answers)
    async def ready() -> Response:
        return system.ready(service)

    @app.api_route("/ping", methods=["GET", "POST"], summary="As /health", include_in_schema=False)
    async def ping() -> Response:
        return system.health(service)

    @app.get("/version", openapi_extra=route(answers.Version, errors=ANYWHERE))
    async def version() -> Response:
        return system.version()

    @app.get("/metrics", summary="Prometheus' text form", openapi_extra=route(None, errors=ANYWHERE))
    async def read_metrics() -> Response:
        return await metrics(service)


def _add_api(app: FastAPI, service: Service, described: Described) -> None:
    route = described.route

    @app.get("/v1/models", openapi_extra=route(answers.ModelList, errors=MODEL))
    async def list_models() -> Response:
        return system.models(service)

    @app.get("/v1/models/{name:path}", openapi_extra=route(answers.Model, errors=MODEL))
    async def retrieve_model(name: str) -> Response:
        return system.model(service, name)

    chat = route(answers.ChatCompletion, ChatRequest, events=answers.ChatCompletionChunk, errors=GENERATES)

    @app.post("/v1/chat/completions", openapi_extra=chat)
    async def create_chat_completion(request: Request) -> Response:
        return await chat_completions(service, request)

    text = route(answers.Completion, CompletionRequest, events=answers.CompletionChunk, errors=GENERATES)

    @app.post("/v1/completions", openapi_extra=text)
    async def create_completion(request: Request) -> Response:
        return await completions(service, request)

    @app.post("/tokenize", openapi_extra=route(answers.Tokens, TokenizeText, TokenizeChat, errors=BODY))
    async def create_tokens(request: Request) -> Response:
        return await tokenize(service, request)

    @app.post("/detokenize", openapi_extra=route(answers.Text, DetokenizeRequest, errors=BODY))
    async def create_text(request: Request) -> Response:
        return await detokenize(service, request)
