"""What all tabs of the page share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firsttoken.chat.chat_server import ChatServer
from firsttoken.chat.page.live import LiveAnswers
from firsttoken.chat.page.models import Models
from firsttoken.chat.page.options import Options
from firsttoken.chat.patience import Patience

if TYPE_CHECKING:
    from firsttoken.chat.page.data_layer import History

USER = "owner"  # the page's one user

# A question waits for a server that is down or busy: whoever asked sees why, and can stop.
_PATIENT = Patience(down=1800, loading=1800, busy=600, unavailable=1800)
_QUICK = Patience(down=0, loading=0, busy=0, unavailable=0)


class Service:
    def __init__(self, options: Options, kept: History, live: LiveAnswers) -> None:
        self.options = options
        self.kept = kept
        self.server = ChatServer(options.url, api_key=options.api_key, patience=_PATIENT)
        self.quick = ChatServer(options.url, api_key=options.api_key, patience=_QUICK)
        self.models = Models(self.server, self.quick)
        self.live = live

    async def close(self) -> None:
        """Stops the answers that are being written and keeps what came."""
        await self.live.stop()
        await self.server.close()
        await self.quick.close()
        await self.kept.close()
