"""The page's own routes, before Chainlit's: document, assets, uploads, attachments, exports, the server's state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from chainlit.auth import create_jwt, get_current_user, get_token_from_cookies, set_auth_cookie
from chainlit.server import app as chainlit_app
from chainlit.server import get_html_template
from chainlit.session import WebsocketSession
from chainlit.user import User
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from firsttoken.chat.attachments import LARGEST, read
from firsttoken.chat.chat_errors import ServerLoading, WaitingError
from firsttoken.chat.history import estimate
from firsttoken.chat.language import Language, language_of
from firsttoken.chat.page import export, words
from firsttoken.chat.page.document import policy, tidy
from firsttoken.chat.page.guard import Guard
from firsttoken.chat.page.service import USER, Service
from firsttoken.chat.page.store import Row

_ASSETS = Path(__file__).parent / "assets"
_STATE_AGE = 1.0  # seconds for which one answer of the server serves all tabs
_DOCUMENTS = ("/", "/login", "/login/callback", "/thread/{id}", "/element/{id}", "/env")


class Web:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._state: tuple[float, WaitingError | None] = (0.0, None)
        self._asking = asyncio.Lock()

    def app(self) -> ASGIApp:
        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await self._service.close()

        routes = [
            *(Route(path, self.document) for path in _DOCUMENTS),
            Route("/user", self.user),
            Route("/firsttoken/state", self.state),
            Route("/firsttoken/files/{id}", self.file),
            Route("/firsttoken/export", self.export_all),
            Route("/firsttoken/export/{id}", self.export_one),
            Route("/project/file", self.upload, methods=["POST"]),
            Mount("/firsttoken/assets", StaticFiles(directory=_ASSETS)),
            Route("/public/elements/{name}.jsx", self.element),  # where Chainlit looks for elements
            Route("/favicon", self.icon),
            Route("/logo", self.logo),
            Route("/avatars/{name}", self.icon),
            Mount("/", chainlit_app),
        ]
        return Guard(
            Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _said}),
            self._service.options,
        )

    async def document(self, request: Request) -> Response:
        login = "password" if self._service.options.password else "none"
        known = get_token_from_cookies(request.cookies) is not None
        if login == "password" and not known and not request.url.path.startswith("/login"):
            return RedirectResponse("/login")  # which the page would do itself, after a refusal
        html = tidy(get_html_template(""))
        html = html.replace('<html lang="en">', f'<html lang="{_tag(request)}" data-login="{login}">')
        response = HTMLResponse(html, headers={"Content-Security-Policy": policy(html), "Cache-Control": "no-cache"})
        if login == "none" and not known:
            # Here already, so that the page need not first be refused and then ask to be let in.
            set_auth_cookie(request, response, create_jwt(User(identifier=USER)))
        return response

    async def user(self, request: Request) -> Response:
        """Who is logged in. Where nobody is, Chainlit's own refusal would be an error in the console of each login."""
        try:
            found = await get_current_user(get_token_from_cookies(request.cookies))
        except HTTPException:
            return Response(status_code=204)
        return JSONResponse(found.to_dict())

    async def element(self, request: Request) -> Response:
        """Chainlit fetches it again for each answer, which must not wait for that."""
        path = _ASSETS / f"{request.path_params['name']}.jsx"
        if path not in _ASSETS.glob("*.jsx"):
            raise HTTPException(404)
        return FileResponse(path, media_type="text/javascript", headers={"Cache-Control": "max-age=600"})

    async def icon(self, _: Request) -> Response:
        return Response((_ASSETS / "icon.svg").read_bytes(), media_type="image/svg+xml")

    async def logo(self, request: Request) -> Response:
        ink = "#e9eded" if request.query_params.get("theme") == "dark" else "#161c1e"
        drawing = (_ASSETS / "logo.svg").read_text().replace("currentColor", ink)
        return Response(drawing, media_type="image/svg+xml")

    async def state(self, request: Request) -> Response:
        """Whether the model's server can be asked: what the bar above the chat shows."""
        await _user(request)
        language = _language(request)
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now - self._state[0] > _STATE_AGE:
                self._state = (now, await self._service.quick.state())
        error = self._state[1]
        if error is None:
            return JSONResponse({"state": "ready", "back": words.STATE_BACK.text(language)})
        loading = isinstance(error, ServerLoading)
        form = words.STATE_LOADING if loading else words.STATE_DOWN
        fraction = error.fraction if isinstance(error, ServerLoading) else None
        return JSONResponse(
            {"state": "loading" if loading else "down", "text": form.text(language), "fraction": fraction}
        )

    async def upload(self, request: Request) -> Response:
        """Keeps a text for the question to come, and says what it costs. Chainlit's route would take anything."""
        user = await _user(request)
        session = WebsocketSession.get_by_id(request.query_params.get("session_id", ""))
        if session is None or session.user is None or session.user.identifier != user:
            raise HTTPException(404, "Reload the page.")
        if int(request.headers.get("content-length", "0")) > 4 * LARGEST:  # nothing of it is read
            raise HTTPException(413, words.FILE_TOO_LARGE.text(_language(request), name="…", limit=LARGEST // 1024))
        async with request.form(max_files=1, max_fields=1) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile) or not file.filename:
                raise HTTPException(400, "file")
            name, content = Path(file.filename).name, await file.read(LARGEST + 1)
        language = language_of(session.language)
        if len(content) > LARGEST:
            raise HTTPException(413, words.FILE_TOO_LARGE.text(language, name=name, limit=LARGEST // 1024))
        text = read(content)
        if text is None:
            raise HTTPException(415, words.FILE_TEXT_ONLY.text(language, name=name))
        await self._say_cost(session, language, name, text)
        kept = await session.persist_file(name=name, content=content or b"\n", mime="text/plain")
        return JSONResponse(kept)

    async def _say_cost(self, session: WebsocketSession, language: Language, name: str, text: str) -> None:
        """Raises HTTPException for a text that cannot fit with any question."""
        model = await self._service.models.pick_now(session.chat_settings.get("model"))
        count = await self._service.quick.count_text(model.name, text) if model else None
        tokens = estimate(text) if count is None else count
        if model is None or model.context is None:
            return
        room = model.context * 3 // 4  # the rest is for the question and its answer
        values = {"name": name, "tokens": f"{tokens:,}", "room": f"{room:,}"}
        if tokens > room:
            raise HTTPException(413, words.FILE_TOO_LONG.text(language, **values))
        await session.emit("toast", {"message": words.FILE_TOKENS.text(language, **values), "type": "info"})

    async def file(self, request: Request) -> Response:
        """An attachment of the user's own, never as something that a browser runs."""
        found = await self._service.kept.run(self._service.kept.store.file, request.path_params["id"])
        if found is None:
            raise HTTPException(404)
        await self._own_thread(request, found[0])
        return Response(found[1], media_type="text/plain; charset=utf-8", headers={"Content-Disposition": "attachment"})

    async def export_one(self, request: Request) -> Response:
        thread = await self._own_thread(request, request.path_params["id"])
        return _download(export.as_markdown(thread), "text/markdown", export.file_name(thread) + ".md")

    async def export_all(self, request: Request) -> Response:
        """Every chat as one JSON file."""
        user = await _user(request)
        kept = self._service.kept
        row = await kept.run(kept.store.user, user)
        found: list[Row] = []
        more, cursor = True, None
        while more:
            threads, more = await kept.run(kept.store.threads, row["id"], first=100, cursor=cursor, search=None)
            for thread in threads:
                if whole := await kept.run(kept.store.thread, thread["id"]):
                    found.append(export.as_messages(whole))
            cursor = threads[-1]["id"] if threads else None
        return _download(json.dumps(found, ensure_ascii=False, indent=1), "application/json", "chats.json")

    async def _own_thread(self, request: Request, thread_id: str) -> Row:
        user = await _user(request)
        thread = await self._service.kept.get_thread(thread_id)
        if thread is None or thread["userIdentifier"] != user:
            raise HTTPException(404)
        return thread


async def _said(_: Request, error: Exception) -> Response:
    """As Chainlit's browser code reads it."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code)


async def _user(request: Request) -> str:
    """The name of who is logged in. Raises HTTPException."""
    token = get_token_from_cookies(request.cookies)
    if not token:
        raise HTTPException(401)
    return str((await get_current_user(token)).identifier)


def _tag(request: Request) -> str:
    """The browser's first language, for the document."""
    return "zh-CN" if _language(request) == "zh" else "en"


def _language(request: Request) -> Language:
    return language_of(request.headers.get("accept-language", ""))


def _download(text: str, kind: str, name: str) -> Response:
    return Response(
        text,
        media_type=f"{kind}; charset=utf-8",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"},
    )
