"""An answer on its way, shown in every tab that watches its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

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


class LiveAnswer:
    """The step as the page shows it, and who looks on. Its `output` grows; `text` is what the model wrote."""

    def __init__(self, step: Row, viewer: Viewer, task: asyncio.Task[Any]) -> None:
        self.step = step | {"metadata": {}}
        self.text = ""
        self.task = task  # cancel it to stop the answer
        self._viewers: dict[str, Viewer] = {viewer.id: viewer}
        self._behind: set[str] = set()  # viewers that joined since the last delta: they get the whole text once

    def join(self, viewer: Viewer) -> None:
        """A tab that opens the thread, or comes back to it, while the answer is being written."""
        self._viewers[viewer.id] = viewer
        self._behind.add(viewer.id)

    async def begin(self) -> None:
        await self.tell("stream_start", self.step | {"streaming": True})

    async def add(self, text: str) -> None:
        """The next piece of what the model writes."""
        self.text += text
        before, now = self.step["output"], shown(self.text)
        self.step["output"] = now
        if now != self.text:
            self.step["metadata"]["text"] = self.text  # what the model is sent again, and what is copied
        grown = now.startswith(before)
        for viewer in list(self._viewers.values()):
            whole = not grown or viewer.id in self._behind
            self._behind.discard(viewer.id)
            token = now if whole else now[len(before) :]
            await viewer.emit(
                "stream_token", {"id": self.step["id"], "token": token, "isSequence": whole, "isInput": False}
            )

    async def end(self) -> None:
        await self.tell("update_message", self.step)
        await self.tell("task_end", {})

    async def tell(self, event: str, data: Row) -> None:
        for viewer in list(self._viewers.values()):
            await viewer.emit(event, data)


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
