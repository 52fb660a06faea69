"""What a client process is asked to do, its share of one phase of a scenario, and what it answers: lines of JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from firsttoken.bench.prompt_form import PromptForm
from firsttoken.bench.records import Phase
from firsttoken.bench.scenario import Workload


class Target(msgspec.Struct, kw_only=True, frozen=True):
    """The server and what every request to it has in common."""

    url: str
    model: str
    headers: dict[str, str] = {}
    timeout: float = 600.0  # seconds without a byte
    verify_tls: bool = True
    ignore_eos: bool = True  # whether the server takes the field
    body: dict[str, msgspec.Raw] = {}  # fields joined into every request
    tokenizer: str = ""  # a tokenizer.json's path


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """One entry of an open loop's schedule."""

    number: int  # of the dialogue
    at: float  # seconds after the start


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """One process's share. A closed loop has `streams`, an open loop `arrivals`."""

    target: Target
    scenario: str
    phase: Phase
    workload: Workload
    form: PromptForm | None = None
    seed: str
    client: int = 0
    streams: list[int] = []  # the closed loop's slots that this process runs
    numbers: list[int] = []  # dialogues for its slots; without them see `duration`
    first: int = 0  # without `numbers`: dialogues first, first + step, ... until the duration is over
    step: int = 1
    duration: float | None = None  # seconds after the start in which a dialogue may begin
    held: list[int] = []  # dialogues beside the slots' that go out at `Go`
    tells_after: int = 0  # chunks after which each of the slots' dialogues is told as `Decoding`; 0: none is
    arrivals: list[Arrival] = []
    sampling: dict[str, float] = {}
    extra_body: dict[str, Any] = {}  # of the scenario; the target's own fields come on top


class Start(msgspec.Struct, tag="start"):
    """All processes have their prompts ready: begin at this time, seconds of `time.monotonic()`."""

    at: float


class Go(msgspec.Struct, tag="go"):
    """All dialogues of all processes are decoding (or over): send what was held."""


class Cancel(msgspec.Struct, tag="cancel"):
    """Stop now: what is in flight is recorded as broken off."""


class Run(msgspec.Struct, tag="run"):
    """Prepare a job; answered by `Prepared` when its prompts are made, and begun at `Start`."""

    job: Job


class SelfTest(msgspec.Struct, tag="self_test"):
    """Measure how many chunks this process can take; answered by `Prepared`, and at `Start` by `Tested`."""

    seconds: float


class Prepared(msgspec.Struct, tag="prepared"):
    pass


class Decoding(msgspec.Struct, tag="decoding"):
    """A dialogue has had its first chunks, or is over and never will."""


class Done(msgspec.Struct, tag="done"):
    """A request has ended. The record's JSON is a line of the records' file as it is."""

    record: msgspec.Raw


class Tested(msgspec.Struct, tag="tested"):
    """What the self-test found."""

    chunks_per_second: float


class Finished(msgspec.Struct, tag="finished"):
    """The job is over. `late`: the longest time by which the event loop itself was late, seconds."""

    late: float = 0.0


class Broken(msgspec.Struct, tag="broken"):
    """The job cannot be run: one sentence."""

    text: str


ToClient = Run | SelfTest | Start | Go | Cancel
FromClient = Prepared | Decoding | Done | Tested | Finished | Broken

_encode = msgspec.json.Encoder().encode
_to_client = msgspec.json.Decoder(ToClient)
_from_client = msgspec.json.Decoder(FromClient)


def encode_line(message: ToClient | FromClient) -> bytes:
    """The message as one line, its end included."""
    return _encode(message) + b"\n"


def decode_to_client(line: bytes) -> ToClient:
    return _to_client.decode(line)


def decode_from_client(line: bytes) -> FromClient:
    return _from_client.decode(line)
