"""Chainlit's data layer over the store. SQLite runs in one thread of its own, in the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from chainlit.data.base import BaseDataLayer
from chainlit.data.utils import queue_until_user_message
from chainlit.types import PageInfo, PaginatedResponse, Pagination, ThreadFilter
from chainlit.user import PersistedUser, User

from firsttoken.chat.page.live import LiveAnswers
from firsttoken.chat.page.store import Row, Store

T = TypeVar("T")


class History(BaseDataLayer):
    """Nothing of a chat is written before its first question: Chainlit holds it back until then."""

    def __init__(self, store: Store, live: LiveAnswers) -> None:
        self.store = store
        self._live = live
        self._deleted: set[str] = set()  # threads; what still wants to be written to them is late
        self._thread = ThreadPoolExecutor(1, "history")

    async def run(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """A method of the store, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments, **named))

    async def get_user(self, identifier: str) -> PersistedUser | None:
        row = await self.run(self.store.user, identifier)
        return PersistedUser(id=row["id"], identifier=row["identifier"], createdAt=row["created"])

    async def create_user(self, user: User) -> PersistedUser | None:
        return await self.get_user(user.identifier)

    @queue_until_user_message()
    async def create_step(self, step_dict: Row) -> None:
        if step_dict["threadId"] not in self._deleted:
            await self.run(self.store.put_step, step_dict)

    @queue_until_user_message()
    async def update_step(self, step_dict: Row) -> None:
        if step_dict["threadId"] not in self._deleted:
            await self.run(self.store.put_step, step_dict)

    @queue_until_user_message()
    async def delete_step(self, step_id: str) -> None:
        await self.run(self.store.delete_step, step_id)

    @queue_until_user_message()
    async def create_element(self, element: Any) -> None:
        row = dict(element.to_dict())
        if not row["forId"] or row["threadId"] in self._deleted:
            return
        file = None
        if element.path:
            # An upload lies in the session's folder, which goes with it: from now on the store has it.
            file = await asyncio.to_thread(Path(element.path).read_bytes)
            row |= {"url": f"/firsttoken/files/{row['id']}", "chainlitKey": None}
        await self.run(self.store.put_element, row, file)

    async def put_foot(self, foot: Row) -> None:
        """What stands under an answer."""
        if foot["threadId"] not in self._deleted:
            await self.run(self.store.put_element, foot)

    async def get_element(self, thread_id: str, element_id: str) -> Row | None:
        return await self.run(self.store.element, thread_id, element_id)

    @queue_until_user_message()
    async def delete_element(self, element_id: str, thread_id: str | None = None) -> None:
        await self.run(self.store.delete_element, element_id)

    async def get_thread_author(self, thread_id: str) -> str:
        return await self.run(self.store.author, thread_id) or ""

    async def delete_thread(self, thread_id: str) -> None:
        self._deleted.add(thread_id)
        await self._live.stop(thread_id)
        await self.run(self.store.delete_thread, thread_id)

    async def list_threads(self, pagination: Pagination, filters: ThreadFilter) -> PaginatedResponse[Row]:
        assert filters.userId is not None, "Chainlit lists threads for a user who is logged in"
        threads, more = await self.run(
            self.store.threads,
            filters.userId,
            first=min(pagination.first, 100),
            cursor=pagination.cursor,
            search=filters.search,
        )
        ends = (threads[0]["id"], threads[-1]["id"]) if threads else (None, None)
        return PaginatedResponse(PageInfo(hasNextPage=more, startCursor=ends[0], endCursor=ends[1]), threads)

    async def get_thread(self, thread_id: str) -> Row | None:
        return await self.run(self.store.thread, thread_id)

    async def update_thread(
        self,
        thread_id: str,
        name: str | None = None,
        user_id: str | None = None,
        metadata: Row | None = None,
        tags: list[str] | None = None,
    ) -> None:
        if thread_id not in self._deleted:
            await self.run(self.store.update_thread, thread_id, name=name, user_id=user_id, metadata=metadata)

    async def build_debug_url(self) -> str:
        return ""

    async def close(self) -> None:
        await self.run(self.store.close)
        self._thread.shutdown()

    async def delete_feedback(self, feedback_id: str) -> bool:
        """The page asks for no ratings."""
        return False

    async def upsert_feedback(self, feedback: Any) -> str:
        """The page asks for no ratings."""
        return ""

    async def get_favorite_steps(self, user_id: str) -> list[Row]:
        """The page has no favourites."""
        return []
