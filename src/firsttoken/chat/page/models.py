"""Which models the server has, remembered between questions so that none waits for a list."""

from __future__ import annotations

from firsttoken.chat.chat_errors import ChatError
from firsttoken.chat.chat_server import ChatServer, OnWait
from firsttoken.chat.settings import Model


class Models:
    def __init__(self, patient: ChatServer, quick: ChatServer) -> None:
        """The same server twice: one that waits for it to come back, one that does not."""
        self._patient = patient
        self._quick = quick
        self.known: list[Model] = []  # as the server last said; empty before it did

    def pick(self, name: str | None) -> Model | None:
        """The one of that name, else the first; None while none is known."""
        return next((model for model in self.known if model.name == name), self.known[0] if self.known else None)

    async def pick_now(self, name: str | None) -> Model | None:
        """`pick`; where none is known yet the server is asked once, without waiting for one that is not there."""
        if not self.known:
            await self.refresh()
        return self.pick(name)

    async def refresh(self) -> bool:
        """Asks again, without waiting; whether the server answered. What was known stays where it did not."""
        try:
            self.known = await self._quick.models()
        except ChatError:
            return False
        return True

    async def wait_for(self, name: str | None, on_wait: OnWait | None = None) -> Model:
        """`pick`, once there is something to pick from. Raises ChatError."""
        if not self.known:
            self.known = await self._patient.models(on_wait)
        found = self.pick(name)
        assert found is not None, "a server without models is refused by its client"
        return found
