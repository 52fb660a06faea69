"""Messages between API workers and the engine process, and their bytes.

A worker connects to the engine's Unix socket. Each frame is a 4-byte little-endian length and a msgpack body
(msgspec; dataclasses travel as maps). End of file on either side means that the other process is gone. That an engine
lives and does nothing is told by a `GetStats` that stays unanswered: it answers between two steps. The engine sends a
worker one `Step` message a step, whatever the number of its sequences.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import msgspec

from firsttoken.types import EngineInfo, GenerateRequest, SequenceOutput

MAX_FRAME = 256 * 1024 * 1024  # bytes; a larger length means a broken peer
_LENGTH = struct.Struct("<I")


# --- worker to engine ---


class Submit(msgspec.Struct, tag="submit"):
    """Run a request. Answered at once by `Accepted` or `Rejected`, before any step output of it."""

    request: GenerateRequest


class Abort(msgspec.Struct, tag="abort"):
    """The client is gone: free these requests' blocks within one step. Unknown ids are ignored. No answer."""

    request_ids: list[str]


class Stop(msgspec.Struct, tag="stop"):
    """A stop string was found in this sequence's text: it ends as `stop`. No answer; later outputs may cross it."""

    request_id: str
    index: int


class GetStats(msgspec.Struct, tag="get_stats"):
    """Answered by `Stats` with the same token."""

    token: int


class Drain(msgspec.Struct, tag="drain"):
    """Accept no new requests from anyone; running ones go on."""


class StartProfile(msgspec.Struct, tag="start_profile"):
    """Record steps as the configuration says, once the engine is busy. No answer; ignored while one is under way."""


# --- engine to worker ---


class Loading(msgspec.Struct, tag="loading"):
    """Progress before `Ready`; `fraction` is 0 to 1 over the whole start."""

    phase: str
    fraction: float


class Ready(msgspec.Struct, tag="ready"):
    """The engine is warm. Sent once to every worker, also to one that connects later."""

    info: EngineInfo


class Failed(msgspec.Struct, tag="failed"):
    """The engine could not start, or died with a reason: one sentence for the user. The socket closes after it."""

    message: str


class Accepted(msgspec.Struct, tag="accepted"):
    request_id: str


class Rejected(msgspec.Struct, tag="rejected"):
    """`kind` is "invalid", "queue_full" or "unavailable"; the rest as in `errors`."""

    request_id: str
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None


class Step(msgspec.Struct, tag="step"):
    """Every new token of one engine step that belongs to this worker."""

    outputs: list[SequenceOutput]


@dataclass(slots=True)
class Histogram:
    """Cumulative counts as Prometheus wants them: counts[i] observations were at most bounds[i]; the last is +Inf."""

    bounds: list[float]
    counts: list[int]
    total: float = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.total += value * times
        for i, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[i] += times
        self.counts[-1] += times


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """Gauges, counters and histograms, all owned by the engine; names follow vLLM's metrics without the prefix."""

    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)  # requests by finish reason
    histograms: dict[str, Histogram] = field(default_factory=dict)


class Stats(msgspec.Struct, tag="stats"):
    token: int
    stats: EngineStats


ToEngine = Submit | Abort | Stop | GetStats | Drain | StartProfile
ToWorker = Loading | Ready | Failed | Accepted | Rejected | Step | Stats

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_to_worker = msgspec.msgpack.Decoder(ToWorker)


def encode_frame(message: ToEngine | ToWorker) -> bytes:
    """The message's whole frame, length included."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def decode_to_engine(body: bytes | memoryview) -> ToEngine:
    return _to_engine.decode(body)


def decode_to_worker(body: bytes | memoryview) -> ToWorker:
    return _to_worker.decode(body)


class FrameReader:
    """Cuts a byte stream into frame bodies.

    Raises ValueError on a length above MAX_FRAME.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Adds received bytes and returns every body that is now complete."""
        self._buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > MAX_FRAME:
                raise ValueError(f"frame of {length} bytes is over the limit of {MAX_FRAME}")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        return bodies
