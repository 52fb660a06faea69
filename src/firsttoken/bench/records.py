"""What a benchmark writes down: every chunk's time, every request, every scenario, and the run that holds them.

All `at`, `sent`, `intended`, `started`, `ended` times are seconds of `time.monotonic()`: one clock for every process of
a host, so that records of several client processes merge as they are. A scenario carries a wall-clock time beside its
monotonic start, so that a reader can place it in a day.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from firsttoken.errors import ConfigError

SCHEMA = "firsttoken.bench/1"
STOPPED = "the run was stopped before the answer ended"
"""The error of requests that the user broke off: they count neither as answered nor as failed."""

Phase = Literal["warm-up", "measured"]
Arrivals = Literal["poisson", "constant", "trace"]
Level = Literal["ok", "flag", "fail"]
Cache = Literal["cold", "reuse", "any"]


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """One streamed event that carried text (or a tool call's text). Role chunks and empty deltas are no chunks."""

    at: float  # when its last byte reached this process, read before parsing
    text: str
    tokens: int  # see `RequestRecord.token_source`; 0 only where a source says so


class RequestRecord(msgspec.Struct, kw_only=True):
    """One request from its schedule to its end. An error is written down here, never raised."""

    id: str  # unique in the run
    scenario: str  # `ScenarioResult.name`
    phase: Phase
    stream: int  # the closed loop's slot, the user of a dialogue, or the arrival's number in an open loop
    turn: int = 0  # of a dialogue, from 0
    group: str = ""  # tells kinds of requests in one scenario apart, such as "background" and "arrival"
    client: int = 0  # the client process
    intended: float | None = None  # the schedule's send time; None in a closed loop, which has no schedule
    sent: float = 0.0  # when the request's first byte was handed to the socket, connection included in what follows
    headers: float | None = None  # when the status line and headers were complete
    ended: float = 0.0  # end of the body, or when the error was seen
    status: int | None = None  # HTTP status; None when no answer came
    error: str | None = None  # one sentence; None for a complete answer
    chunks: list[Chunk] = []
    max_tokens: int | None = None  # what was asked for
    ignore_eos: bool = False  # then exactly max_tokens are due
    prompt_tokens_intended: int | None = None
    prompt_tokens: int | None = None  # this and the next two from the server's usage
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    # where Chunk.tokens come from: the server's own count a chunk (ids, logprobs or running usage), a tokenizer over
    # the text, usage's total spread over the chunks, or else max_tokens where the answer ended by length; "none" where
    # nothing is known and each chunk counts as one
    token_source: Literal["server", "tokenizer", "spread", "asked", "none"] = "none"
    finish_reason: str | None = None


class LoadSpec(msgspec.Struct, kw_only=True, frozen=True):
    """How requests are offered. Closed: `concurrency` in flight. Open: sent by a schedule whatever is in flight."""

    concurrency: int | None = None  # closed loop
    rate: float | None = None  # open loop, requests a second; None for a trace
    arrivals: Arrivals | None = None  # open loop
    trace: list[float] = []  # seconds from the start, ascending, for "trace"
    requests: int | None = None  # measured requests (dialogues, for a scenario of dialogues)
    duration: float | None = None  # seconds in which measured requests may start
    warm_up: int = 0  # dialogues before the measured ones; an open loop's go out like a closed loop's
    held: int = 0  # of a closed loop's requests: so many, the last ones, go out when all the others are decoding
    held_until: int = 1  # chunks that each of the others must have had by then

    @property
    def open(self) -> bool:
        return self.arrivals is not None

    @property
    def label(self) -> str:
        """Short and stable: "16 in flight", "16 in flight, then 1", "2/s poisson", "trace of 40"."""
        if self.arrivals == "trace":
            return f"trace of {len(self.trace)}"
        if self.arrivals is not None:
            return f"{self.rate:g}/s {self.arrivals}"
        return f"{self.concurrency} in flight" + (f", then {self.held}" if self.held else "")


class Check(msgspec.Struct, kw_only=True, frozen=True):
    """One self-check's verdict: "fail" says that the figures must not be used, "flag" that they need a second look."""

    name: str  # "client", "schedule", "prompt-tokens", "output-tokens", "cache", "warm-up", "errors", "clocks", ...
    level: Level
    text: str  # one sentence, with the numbers


class Distribution(msgspec.Struct, kw_only=True, frozen=True):
    """A sample's summary in seconds. A percentile is None where the sample is too small to carry it; `note` says so."""

    count: int
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    note: str | None = None


class Metrics(msgspec.Struct, kw_only=True):
    """Figures of one scenario's measured requests; definitions in docs/reference/metrics.md. Seconds and tokens."""

    attempted: int
    succeeded: int
    failed: int
    duration: float  # from the first send to the last end of measured requests
    ttft: Distribution
    ttft_scheduled: Distribution | None  # from the intended send time; None in a closed loop
    tpot: Distribution
    gaps: Distribution  # between neighbouring chunks of one request
    worst_gap: Distribution  # each request's longest
    worst_token_gap: Distribution | None = None  # the same a token; None where nobody counted each chunk's tokens
    e2e: Distribution
    e2e_scheduled: Distribution | None
    send_lag: Distribution | None  # sent − intended
    prompt_tokens: int | None  # None where the server sent no usage
    output_tokens: int
    cached_tokens: int | None
    output_tokens_per_s: float
    total_tokens_per_s: float | None
    requests_per_s: float
    decode_tokens_per_s: float | None  # 1 / median TPOT: one user's reading speed
    max_in_flight: int
    slo: dict[str, float] = {}  # limits in seconds by metric: ttft, tpot, e2e, gap
    goodput_per_s: float | None = None  # requests a second that met every limit
    goodput_share: float | None = None  # of those attempted


class CeilingShare(msgspec.Struct, kw_only=True, frozen=True):
    """One figure beside what the machine allows: `share` 1.0 is at the ceiling, above it is beyond belief."""

    figure: Literal["ttft", "tpot", "output_tokens_per_s"]
    measured: float  # seconds or tokens a second; times are medians
    ceiling: float  # the best possible, in the same unit
    share: float  # of the ceiling that was reached, for times as well: ceiling over measured
    bound: Literal["memory", "compute", "both"]  # what sets the ceiling
    text: str = ""  # one sentence that says how the ceiling comes about


class ScenarioResult(msgspec.Struct, kw_only=True):
    """One scenario at one load. A sweep is several of these that share `sweep`."""

    name: str  # unique in the run; a sweep's point is "sweep@16"
    scenario: str  # the scenario's own name
    title: str = ""
    title_zh: str = ""
    sweep: str | None = None  # "concurrency" or "rate" where this is a sweep's point
    load: LoadSpec
    cache: Cache = "any"  # what the server's prefix cache should have held
    started_wall: float = 0.0  # time.time() at `started`
    started: float = 0.0
    ended: float = 0.0
    complete: bool = False  # False: broken off; its records are what was measured until then
    records: list[RequestRecord] = []  # kept in the JSONL file, not in the result's own JSON
    metrics: Metrics | None = None
    group_metrics: dict[str, Metrics] = {}  # where its requests have more than one group
    shares: list[CeilingShare] = []  # empty where no ceiling is known; `RunResult.roofline` has the shares alone
    checks: list[Check] = []


class Sample(msgspec.Struct, kw_only=True):
    """One reading of one source. A sensor that is absent has no key."""

    at: float
    source: str  # "gpu0", "user:gpu0:<pid>", "host", "process:<name>:<pid>"
    values: dict[str, float] = {}  # name with its unit: power_w, sm_clock_mhz, memory_used_bytes, cpu_percent, ...
    states: list[str] = []  # such as the reasons for which clocks are held back


class ServerIdentity(msgspec.Struct, kw_only=True):
    """What the server said of itself; unknown fields stay empty."""

    kind: str = ""  # "firsttoken", "vllm", "sglang", "llama.cpp", or empty
    version: str = ""
    model: str = ""
    max_model_len: int | None = None
    command: str = ""  # what --launch ran
    details: dict[str, str] = {}


class RunResult(msgspec.Struct, kw_only=True):
    """One run of `firsttoken bench run`; the file's root object."""

    schema: str = SCHEMA
    created: float = 0.0  # time.time()
    version: str = ""  # of firsttoken
    command: list[str] = []
    url: str = ""
    model: str = ""
    seed: int | None = None  # what the prompts were drawn from
    server: ServerIdentity = msgspec.field(default_factory=ServerIdentity)
    machine: dict[str, str | float | None] = {}
    ceilings: dict[str, float] = {}
    bounds: dict[str, Any] = {}  # the `Roofline` that figures are held against, as plain data
    slo: dict[str, float] = {}  # limits in seconds by metric
    roofline: dict[str, dict[str, float]] = {}  # by scenario name: share of its ceiling by figure
    ready_seconds: float | None = None  # launch to ready
    client_ceiling: float | None = None  # chunks a second over all client processes
    client_processes: int = 1
    scenarios: list[ScenarioResult] = []
    samples: list[Sample] = []
    absent: list[str] = []  # sensors that were looked for and are not there, one sentence each
    checks: list[Check] = []  # of the run as a whole


_encoder = msgspec.json.Encoder()
_run = msgspec.json.Decoder(RunResult)
_record = msgspec.json.Decoder(RequestRecord)


def encode_record(record: RequestRecord) -> bytes:
    """One line of the JSONL file, newline included."""
    return _encoder.encode(record) + b"\n"


def decode_record(line: bytes) -> RequestRecord:
    """Raises msgspec.DecodeError on a line that is cut short and msgspec.ValidationError on a foreign one."""
    return _record.decode(line)


def encode_result(result: RunResult) -> bytes:
    """The result's JSON, indented, without the raw records: those are lines of the JSONL file beside it."""
    bare = [msgspec.structs.replace(scenario, records=[]) for scenario in result.scenarios]
    return msgspec.json.format(_encoder.encode(msgspec.structs.replace(result, scenarios=bare)), indent=1) + b"\n"


def decode_result(data: bytes) -> RunResult:
    """The result without its raw records. Raises ConfigError where it is another program's or another version's."""
    try:
        result = _run.decode(data)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"this is not a result of `firsttoken bench`: {error}") from None
    if result.schema != SCHEMA:
        raise ConfigError(f"the result's schema is {result.schema!r} and this version reads {SCHEMA!r}")
    return result
