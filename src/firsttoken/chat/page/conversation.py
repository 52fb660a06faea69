"""One browser tab's chat: its turns, its settings, and the answer that it waits for.

Chainlit keeps the messages of a session (`chat_context`); the history here is what of them the model is sent.
"""

from __future__ import annotations

import asyncio
from typing import Any

import chainlit as cl
from chainlit.chat_context import chat_context
from chainlit.context import context
from chainlit.utils import utc_now

from firsttoken.chat.attachments import Attachment, read, with_attachments
from firsttoken.chat.history import History
from firsttoken.chat.language import Language, language_of
from firsttoken.chat.page import panel
from firsttoken.chat.page.answering import Answering, Question
from firsttoken.chat.page.live import LiveAnswer, written
from firsttoken.chat.page.service import Service
from firsttoken.chat.page.store import Row
from firsttoken.chat.settings import Settings


class Conversation:
    def __init__(self, service: Service, session: Any) -> None:
        self._service = service
        self._session = session
        self.language: Language = language_of(session.language)
        self.values: dict[str, Any] = {}  # of the settings panel, as it shows them
        self._settings = Settings()
        self._history = History()
        self._asked: list[str] = []  # ids of the questions in the history
        self._attachments: dict[str, list[Attachment]] = {}  # by question id
        self._joined: tuple[Row, LiveAnswer] | None = None  # a question whose answer another tab asked for

    def take_settings(self, values: dict[str, Any]) -> None:
        """Raises panel.WrongSetting, and then what was set stays."""
        self._settings = panel.parse(values, self.language)
        self.values = dict(values)
        self._history.set_system(str(values.get("system") or "").strip())

    async def resume(self, thread: Row) -> None:
        """Takes up a thread where it was left, also in the middle of an answer that another tab asked for."""
        for element in thread["elements"]:
            kept = await self._service.kept.run(self._service.kept.store.file, element["id"])
            if kept and (text := read(kept[1])) is not None:
                self._attachments.setdefault(element["forId"], []).append(Attachment(element["name"], text))
        question: Row | None = None
        for step in thread["steps"]:
            if step["type"] == "user_message":
                question = step
            elif step["type"] == "assistant_message" and step["output"] and question:
                self._history.add(self._with_attachments(question["id"], question["output"]), written(step))
                self._asked.append(question["id"])
                question = None
        if question and (live := self._service.live.get(thread["id"])):
            self._joined = question, live
            self._session.current_task = live.task
            await live.join(self._session, thread)

    async def ask(self, message: cl.Message) -> None:
        """A question that was just sent."""
        self._take_joined()
        for element in message.elements:
            content = await asyncio.to_thread(_read_file, element.path)
            if (text := read(content)) is not None:
                self._attachments.setdefault(message.id, []).append(Attachment(element.name, text))
        await self._answer(message)

    async def edit(self, message_id: str, text: str) -> None:
        """Another wording of an earlier question: all that followed goes."""
        if message := self._find(message_id):
            message.content = text
            await message.update()
            await self._ask_again(message)

    async def regenerate(self, answer_id: str) -> None:
        """Another answer to the same question: the old one goes, and all that followed."""
        question = None
        for message in chat_context.get():
            if message.id == answer_id:
                break
            if message.type == "user_message":
                question = message
        if question is not None:
            await self._ask_again(question)

    def _take_joined(self) -> None:
        """The answer that this tab joined is over by now, or will be as soon as something else is asked."""
        if self._joined:
            (question, live), self._joined = self._joined, None
            if live.text:
                self._history.add(self._with_attachments(question["id"], question["output"]), live.text)
                self._asked.append(question["id"])

    async def _ask_again(self, question: cl.Message) -> None:
        self._take_joined()
        messages = chat_context.get()
        position = messages.index(question)
        before = {message.id for message in messages[:position]}
        count = sum(asked in before for asked in self._asked)
        del self._asked[count:]
        self._history.cut_back(count)
        for message in messages[position + 1 :]:
            await message.remove()
        await context.emitter.task_start()
        await self._answer(question)

    async def _answer(self, question: cl.Message) -> None:
        """Asks and shows; what came is kept whatever happens, and the tabs hear the end."""
        service, session = self._service, self._session
        await service.live.stop(session.thread_id)  # another tab may be asking in the same thread
        message = cl.Message(content="", type="assistant_message")
        message.created_at = utc_now()
        task = asyncio.current_task()
        assert task is not None
        session.current_task = task
        live = LiveAnswer(dict(message.to_dict()), session, task)
        service.live.put(session.thread_id, live)
        asked = Question(
            self._with_attachments(question.id, question.content), self.values.get("model"), self._settings
        )
        try:
            await live.begin()
            foot = await Answering(service.server, service.models, self._history, live, self.language).run(asked)
            if len(self._history.turns) > len(self._asked):
                self._asked.append(question.id)
            message.content, message.metadata = live.step["output"], live.step["metadata"]
            chat_context.add(message)
            await service.kept.create_step(live.step)
            await service.kept.put_foot(foot)
            await live.end(foot)
        finally:
            service.live.drop(session.thread_id, live)
            await live.tell("task_end", {})

    def _with_attachments(self, question_id: str, text: str) -> str:
        return with_attachments(text, self._attachments.get(question_id, []))

    def _find(self, message_id: str) -> cl.Message | None:
        return next((message for message in chat_context.get() if message.id == message_id), None)


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
