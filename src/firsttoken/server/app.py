"""The API as one ASGI application."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from firsttoken.config import ServerConfig
from firsttoken.server import error_handlers, system
from firsttoken.server.api_keys import ApiKeys
from firsttoken.server.auth import BearerAuth
from firsttoken.server.backend import Backend
from firsttoken.server.browser_guard import BrowserGuard
from firsttoken.server.chat import chat_completions
from firsttoken.server.completions import completions
from firsttoken.server.limits import BodyLimit, HeaderLimit
from firsttoken.server.messages.errors import MessagesErrors
from firsttoken.server.messages.route import count_tokens, create_message
from firsttoken.server.metrics import metrics
from firsttoken.server.openapi import OpenApi
from firsttoken.server.request_id import RequestId
from firsttoken.server.responses.route import create_response, no_stored_response
from firsttoken.server.service import Service
from firsttoken.server.tokenize import detokenize, tokenize
from firsttoken.tokenizer import Tokenizer
from firsttoken.version import __version__

EXPOSED_HEADERS = (
    "X-Request-Id",
    "Request-Id",
    "Retry-After",
    "X-Firsttoken-Ignored-Fields",
    "X-Firsttoken-Truncated-Tokens",
)


def create_app(config: ServerConfig, backend: Backend, tokenizer: Tokenizer) -> FastAPI:
    """The whole API over an engine, wherever that runs. It needs no start-up of its own."""
    service = Service(config, backend, tokenizer)
    app = make_routes(service)
    error_handlers.install(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, config=config)
    if config.api_keys or config.api_key_file:
        app.add_middleware(BearerAuth, keys=ApiKeys(config.api_keys, config.api_key_file))
    if config.allowed_origins:  # outside of the keys: a browser asks for leave without one
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )
    app.add_middleware(BrowserGuard, config=config)
    app.add_middleware(HeaderLimit, config=config)
    app.add_middleware(RequestId)
    app.add_middleware(MessagesErrors)

    if config.profile_steps is not None:

        @app.post("/start_profile", include_in_schema=False)  # not of the API: whoever runs the server asks for it
        async def start_profile() -> Response:
            return system.start_profile(service)

    described = OpenApi(app)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(await described.json(), media_type="application/json")

    return app


def make_routes(service: Service) -> FastAPI:
    """The routes alone; `service` is not looked at before a request comes."""
    app = FastAPI(
        title="firsttoken",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # `create_app` has its own
        redirect_slashes=False,
        default_response_class=Response,  # each route makes its own
    )
    _add_probes(app, service)
    _add_api(app, service)
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

    @app.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        return await chat_completions(service, request)

    @app.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        return await completions(service, request)

    @app.post("/v1/responses")
    async def create_a_response(request: Request) -> Response:
        return await create_response(service, request)

    # Not in the document, since it never succeeds.
    @app.api_route("/v1/responses/{response_id}", methods=["GET", "DELETE"], include_in_schema=False)
    async def stored_response(response_id: str) -> Response:
        return no_stored_response(response_id)

    @app.post("/v1/messages")
    async def create_a_message(request: Request) -> Response:
        return await create_message(service, request)

    @app.post("/v1/messages/count_tokens")
    async def count_a_messages_tokens(request: Request) -> Response:
        return await count_tokens(service, request)

    @app.post("/tokenize")
    async def create_tokens(request: Request) -> Response:
        return await tokenize(service, request)

    @app.post("/detokenize")
    async def create_text(request: Request) -> Response:
        return await detokenize(service, request)
