"""An answer on its way, shown in every tab that watches its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from firsttoken.chat.page.elements import growing
from firsttoken.chat.page.markup import shown
from firsttoken.chat.page.store import Row


def written(step: Row) -> str:
    """What the model wrote, of an answer's step."""
    return str((step.get("metadata") or {}).get("text") or step["output"])


class Viewer(Protocol):
    """A browser tab: Chainlit's session."""

    id: str

    @property
    def emit(self) -> Callable[[str, Any], Awaitable[None]]: ...


class Waiting(NamedTuple):
    """What is shown in an answer's place while there is none."""

    text: str
    fraction: float | None = None  # how far it is, 0 to 1; None: not known
    thought: str = ""


class LiveAnswer:
    """The step as the page shows it, and who looks on. Its `output` grows; `text` is what the model wrote.

    What grows goes to the page's own script and is drawn by an element of ours, block by block: Chainlit would draw
    the whole answer anew for each piece, which takes longer and longer. At the end the step itself has it all.
    """

    def __init__(self, step: Row, viewer: Viewer, task: asyncio.Task[Any]) -> None:
        self.step = step | {"metadata": {}}
        self.text = ""
        self.task = task  # cancel it to stop the answer
        self._waiting: Waiting | None = None
        self._viewers: dict[str, Viewer] = {viewer.id: viewer}

    async def join(self, viewer: Viewer, thread: Row) -> None:
        """A tab that opens the thread, or comes back to it, while the answer is being written."""
        thread["steps"].append(self.step | {"output": "", "streaming": True})
        thread["elements"].append(growing(self.step))
        self._viewers[viewer.id] = viewer
        await viewer.emit("task_start", {})
        await viewer.emit("window_message", self._state() | {"text": self.step["output"]})

    async def begin(self) -> None:
        await self.tell("window_message", self._state() | {"text": ""})
        await self.tell("stream_start", self.step | {"streaming": True})
        await self.tell("element", growing(self.step))

    async def add(self, text: str) -> None:
        """The next piece of what the model writes."""
        self._waiting = None
        self.text += text
        before, now = self.step["output"], shown(self.text)
        self.step["output"] = now
        if now != self.text:
            self.step["metadata"]["text"] = self.text  # what the model is sent again, and what is copied
        change = {"more": now[len(before) :]} if now.startswith(before) else {"text": now}
        await self.tell("window_message", self._state() | change)

    async def wait(self, waiting: Waiting) -> None:
        self._waiting = waiting
        await self.tell("window_message", self._state())

    async def end(self, foot: Row) -> None:
        await self.tell("element", foot)  # first: each change of elements has Chainlit draw every message anew
        await self.tell("update_message", self.step)

    async def tell(self, event: str, data: Row) -> None:
        for viewer in list(self._viewers.values()):
            await viewer.emit(event, data)

    def _state(self) -> Row:
        waiting = None if self._waiting is None else self._waiting._asdict()
        return {"answer": self.step["id"], "thread": self.step["threadId"], "waiting": waiting}


class LiveAnswers:
    """Those that are being written now, by thread."""

    def __init__(self) -> None:
        self._by_thread: dict[str, LiveAnswer] = {}

    def get(self, thread_id: str) -> LiveAnswer | None:
        return self._by_thread.get(thread_id)

    def put(self, thread_id: str, answer: LiveAnswer) -> None:
        self._by_thread[thread_id] = answer

    def drop(self, thread_id: str, answer: LiveAnswer) -> None:
        if self._by_thread.get(thread_id) is answer:
            del self._by_thread[thread_id]

    async def stop(self, thread_id: str | None = None) -> None:
        """Stops the thread's answer, or all of them, and waits until what came is kept."""
        answers = [self.get(thread_id)] if thread_id else list(self._by_thread.values())
        tasks = [answer.task for answer in answers if answer is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
