"""How long a request that was refused for now is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from firsttoken.chat.chat_errors import ServerBusy, ServerDown, ServerLoading, WaitingError

T = TypeVar("T")

_FIRST, _LONGEST = 0.25, 5.0  # seconds between tries where the server gives no advice


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of waiting in all, by what the server says; beyond them the error is raised."""

    down: float = 3.0
    loading: float = 1800.0  # a large model from a slow disk
    busy: float = 60.0
    unavailable: float = 3.0

    async def keep_trying(
        self,
        attempt: Callable[[], Awaitable[T]],
        on_wait: Callable[[WaitingError, float], None] | None,
        sleep: Callable[[float], Awaitable[object]],
    ) -> T:
        """Pauses as the server advises, else twice as long each time. Raises what the last attempt raised."""
        waited = 0.0
        own = _FIRST
        while True:
            try:
                return await attempt()
            except WaitingError as error:
                pause = own if error.retry_after is None else error.retry_after
                if waited + pause > self._limit(error):
                    raise
                if on_wait:
                    on_wait(error, pause)
            await sleep(pause)
            waited += pause
            own = min(2 * own, _LONGEST)

    def _limit(self, error: WaitingError) -> float:
        match error:
            case ServerDown():
                return self.down
            case ServerLoading():
                return self.loading
            case ServerBusy():
                return self.busy
            case _:
                return self.unavailable
