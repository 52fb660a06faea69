"""What the server needs of an engine. The server never imports one: it is given a `Backend`."""

from __future__ import annotations

from typing import Literal, Protocol

from firsttoken.errors import RequestError
from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput
from firsttoken.wire import EngineStats

BackendState = Literal["loading", "ready", "draining", "hung", "dead"]


class Sink(Protocol):
    """Takes one request's outputs. Called in the event loop by the one dispatcher, so it must never block."""

    def put(self, output: SequenceOutput) -> None:
        """What one step gave one of the request's sequences."""

    def fail(self, error: RequestError) -> None:
        """The engine died: no more output will come, for any of the request's sequences."""


class Backend(Protocol):
    """An engine, wherever it runs. Every method is called from the event loop."""

    @property
    def state(self) -> BackendState:
        """`loading` until the engine is warm; `draining` finishes what runs; `hung` may come back; `dead` never does by
        itself."""

    @property
    def info(self) -> EngineInfo | None:
        """None until the engine has been ready once."""

    @property
    def loading(self) -> tuple[str, float]:
        """The phase of the start and how much of the whole start is done, 0 to 1."""

    async def submit(self, request: GenerateRequest, sink: Sink) -> None:
        """Returns once the engine has accepted the request; its outputs then go to `sink` until each sequence has
        had a `finish_reason`, or `abort`.

        Raises InvalidRequest, QueueFull or Unavailable; `sink` is not called then. Cancelled: as if aborted.
        """

    def stop(self, request_id: str, index: int) -> None:
        """A stop string was found in this sequence's text: end it as `stop`. Later outputs may still come."""

    def abort(self, request_id: str) -> None:
        """The client is gone: free the blocks and call the sink no more. Unknown and finished ids are ignored."""

    async def stats(self) -> EngineStats:
        """The engine's gauges, counters and histograms. Raises Unavailable."""

    def start_profile(self) -> None:
        """Record steps, once the engine is busy; ignored while that is under way. Raises Unavailable."""

    def drain(self) -> None:
        """Accept no new requests; running ones go on."""
