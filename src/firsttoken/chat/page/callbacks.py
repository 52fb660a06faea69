"""What Chainlit calls: starting, asking, stopping, editing, settings, login."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable
from typing import Any

import chainlit as cl
from chainlit.config import config
from chainlit.context import context, init_ws_context
from chainlit.input_widget import InputWidget, Select, Switch, TextInput
from chainlit.server import sio
from chainlit.session import WebsocketSession

from firsttoken.chat.language import Language, Words, language_of
from firsttoken.chat.page import panel, words
from firsttoken.chat.page.conversation import Conversation
from firsttoken.chat.page.service import USER, Service
from firsttoken.chat.page.starters import STARTERS
from firsttoken.chat.page.store import Row

_WRONG_PASSWORD = 1.0  # seconds that a wrong password costs; tries queue up


class Callbacks:
    """Chainlit finds its callbacks in its configuration; `install` puts these there."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._conversations: dict[str, Conversation] = {}  # by session id
        self._login = asyncio.Lock()
        self._background: set[asyncio.Task[Any]] = set()

    def install(self) -> None:
        code = config.code
        # Set directly, not by Chainlit's decorators: those wrap each call in a step that the page then shows and rates.
        code.on_chat_start = self.on_chat_start
        code.on_chat_resume = self.on_chat_resume
        code.on_message = self.on_message
        code.on_settings_edit = self.on_settings_edit
        code.on_settings_update = self.on_settings_update
        code.set_starters = self.starters
        code.action_callbacks["regenerate"] = self.on_regenerate
        code.data_layer = lambda: self._service.kept
        if self._service.options.password is None:
            code.header_auth_callback = self.log_in_owner
        else:
            code.password_auth_callback = self.log_in
        # Chainlit's own handlers: `stop` would post an English message; `edit_message` leaves nothing to stop.
        sio.on("stop", self.on_stop)
        sio.on("edit_message", self.on_edit)

    # login

    async def log_in_owner(self, headers: Any) -> cl.User | None:
        """On loopback whoever reaches the page is its user; the guard keeps other sites out."""
        return cl.User(identifier=USER)

    async def log_in(self, username: str, password: str) -> cl.User | None:
        expected = self._service.options.password
        assert expected is not None
        async with self._login:
            if hmac.compare_digest(password.encode(), expected.encode()):
                return cl.User(identifier=USER)
            await asyncio.sleep(_WRONG_PASSWORD)
        return None

    # a chat's life

    async def on_chat_start(self) -> None:
        session = context.session
        conversation = self._new_conversation(session)
        user = await self._service.kept.run(self._service.kept.store.user, USER)
        self._take_or_forget(conversation, dict(user["settings"]))
        await self._show_panel(conversation)

    async def on_chat_resume(self, thread: Row) -> None:
        conversation = self._new_conversation(context.session)
        self._take_or_forget(conversation, panel.changed(context.session.chat_settings))
        await conversation.resume(thread)
        await self._show_panel(conversation)

    async def on_message(self, message: cl.Message) -> None:
        await self._conversation(context.session).ask(message)

    async def on_regenerate(self, action: cl.Action) -> None:
        """Returns at once, as the browser waits for it; the answer then comes as any other."""
        answer = str(action.payload.get("message", ""))
        self._start(self._conversation(context.session).regenerate(answer))

    async def on_edit(self, sid: str, payload: Row) -> None:
        session = WebsocketSession.require(sid)
        init_ws_context(session)
        message = payload["message"]
        self._start(self._conversation(session).edit(str(message["id"]), str(message["output"])))

    async def on_stop(self, sid: str) -> None:
        if (session := WebsocketSession.get(sid)) and session.current_task:
            session.current_task.cancel()

    # settings

    async def on_settings_edit(self, values: Row) -> None:
        """While the panel is open: only its switch acts at once."""
        if values.get("reset"):
            kept = {name: values.get(name) for name in ("model", "system")}
            await cl.ChatSettings(self._widgets(kept, self._conversation(context.session).language)).refresh()

    async def on_settings_update(self, values: Row) -> None:
        conversation = self._conversation(context.session)
        try:
            conversation.take_settings(panel.changed(values))
        except panel.WrongSetting as error:
            await context.emitter.send_toast(str(error), "error")
        else:
            kept = self._service.kept
            await kept.run(kept.store.keep_settings, USER, conversation.values)
            if context.session.has_first_interaction:
                await kept.update_thread(context.session.thread_id, metadata={"chat_settings": conversation.values})
        await self._show_panel(conversation)

    async def starters(self, user: cl.User | None, language: str | None) -> list[cl.Starter]:
        tongue = language_of(language or "")
        return [cl.Starter(label=one.label.text(tongue), message=one.question.text(tongue)) for one in STARTERS]

    def _new_conversation(self, session: Any) -> Conversation:
        for gone in [known for known in self._conversations if WebsocketSession.get_by_id(known) is None]:
            del self._conversations[gone]  # Chainlit forgets a tab some minutes after it was closed
        conversation = self._conversations[session.id] = Conversation(self._service, session)
        return conversation

    def _conversation(self, session: Any) -> Conversation:
        return self._conversations.get(session.id) or self._new_conversation(session)

    def _take_or_forget(self, conversation: Conversation, values: Row) -> None:
        """What was kept once may be no longer right."""
        try:
            conversation.take_settings(values)
        except panel.WrongSetting:
            conversation.take_settings({})

    async def _show_panel(self, conversation: Conversation) -> None:
        """Now with the models that are known, and again when the server has told its own."""
        if self._service.models.known:
            await self._send_panel(conversation)
        self._start(self._refresh_panel(conversation))

    async def _refresh_panel(self, conversation: Conversation) -> None:
        before = list(self._service.models.known)
        await self._service.models.refresh()
        if self._service.models.known != before or not before:
            await self._send_panel(conversation)

    async def _send_panel(self, conversation: Conversation) -> None:
        await cl.ChatSettings(self._widgets(conversation.values, conversation.language)).send()

    def _widgets(self, values: Row, language: Language) -> list[InputWidget]:
        model = self._service.models.pick(values.get("model"))
        widgets: list[InputWidget] = []
        if model is not None:
            names = [one.name for one in self._service.models.known]
            widgets.append(Select(id="model", label=words.MODEL.text(language), values=names, initial_value=model.name))
        widgets.append(_text("system", words.SYSTEM, words.SYSTEM_HINT, values, language, multiline=True))
        for field in panel.FIELDS:
            recommended = getattr(model.recommended, field.name) if model else None
            placeholder = "" if field.name in ("max_tokens", "seed") else words.SERVER_CHOOSES.text(language)
            if recommended is not None:
                placeholder = words.RECOMMENDED.text(language, value=f"{recommended:g}")
            widgets.append(_text(field.name, field.label, field.hint, values, language, placeholder=placeholder))
        widgets.append(_text("json_schema", words.SCHEMA, words.SCHEMA_HINT, values, language, multiline=True))
        reset, hint = words.RESET.text(language), words.RESET_HINT.text(language)
        return [*widgets, Switch(id="reset", label=reset, description=hint, initial=False)]

    def _start(self, work: Awaitable[None]) -> None:
        """In the background, with this context's session."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _text(
    name: str,
    label: Words,
    hint: Words,
    values: Row,
    language: Language,
    *,
    placeholder: str = "",
    multiline: bool = False,
) -> TextInput:
    value = values.get(name)
    return TextInput(
        id=name,
        label=label.text(language),
        description=hint.text(language),
        initial="" if value is None else str(value),
        placeholder=placeholder,
        multiline=multiline,
    )
