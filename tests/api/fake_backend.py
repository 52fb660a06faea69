"""An engine whose every token a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from firsttoken.errors import QueueFull, RequestError, Unavailable
from firsttoken.server.backend import BackendState, Sink
from firsttoken.types import EngineInfo, FinishReason, GenerateRequest, SequenceOutput, TokenLogprob
from firsttoken.wire import EngineStats, Histogram

Script = Callable[[GenerateRequest, int], Sequence[int]]  # (request, index of the sequence) -> its tokens


def engine_info(
    *,
    token_id_limit: int,
    eos: int,
    max_model_len: int = 256,
    bos: int | None = None,
    model: str = "tiny",
    **defaults: float,
) -> EngineInfo:
    return EngineInfo(
        model=model,
        architecture="Qwen3ForCausalLM",
        device="cpu",
        device_name="a test",
        dtype="float32",
        weights="float32",
        attention="reference",
        max_model_len=max_model_len,
        vocab_size=512,
        token_id_limit=token_id_limit,
        bos_token_id=bos,
        eos_token_ids=(eos,),
        default_sampling=defaults,
        block_size=16,
        num_blocks=64,
        max_num_seqs=8,
        kv_bytes_per_token=1024,
        weight_bytes=1,
        phases={},
    )


class FakeBackend:
    """Steps one request at a time in its own task, a token a sequence a step.

    `pace` is the pause between steps in seconds; `capacity` bounds the requests that run at once. What was asked of it
    is kept in `submitted`, `stopped` and `aborted`; `running` is what would hold blocks.
    """

    def __init__(self, info: EngineInfo, script: Script) -> None:
        self._info = info
        self._sinks: dict[str, Sink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.script = script
        self.reset()

    def reset(self) -> None:
        """Forgets what was asked of it, and runs as it did at first."""
        self.state: BackendState = "ready"
        self.loading: tuple[str, float] = ("weights", 0.5)
        self.pace = 0.0
        self.capacity = 10_000
        self.refuses: RequestError | None = None  # every request, so
        self.fails_after: int | None = None  # tokens after which a sequence ends as an error
        self.cached_tokens = 0
        self.logprob: Callable[[int, int], TokenLogprob] | None = None  # of a token, instead of the usual
        self.submitted: list[GenerateRequest] = []
        self.stopped: list[tuple[str, int]] = []
        self.aborted: list[str] = []
        self.steps = 0
        self.profiles = 0

    @property
    def info(self) -> EngineInfo | None:
        return None if self.state == "loading" else self._info

    @property
    def running(self) -> list[str]:
        return list(self._sinks)

    async def submit(self, request: GenerateRequest, sink: Sink) -> None:
        if self.refuses is not None:
            raise self.refuses
        if len(self._sinks) >= self.capacity:
            raise QueueFull("The queue is full; try again in a moment.", retry_after=2)
        if self.state == "draining":
            raise Unavailable("The server is shutting down.", retry_after=5)
        self.submitted.append(request)
        self._sinks[request.request_id] = sink
        self._tasks[request.request_id] = asyncio.create_task(self._run(request, sink))

    def stop(self, request_id: str, index: int) -> None:
        self.stopped.append((request_id, index))

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        self._sinks.pop(request_id, None)
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()

    async def stats(self) -> EngineStats:
        histogram = Histogram([0.1, 1.0], [0, 0, 0])
        histogram.observe(0.05)
        return EngineStats(
            gauges={"num_requests_running": len(self._sinks)},
            counters={"prompt_tokens": sum(len(request.prompt_token_ids) for request in self.submitted)},
            finished={"stop": 1},
            histograms={"time_to_first_token_seconds": histogram},
        )

    def start_profile(self) -> None:
        if self.state != "ready":
            raise Unavailable("The model is still loading; send the request again soon.", retry_after=2.0)
        self.profiles += 1

    def drain(self) -> None:
        self.state = "draining"

    def die(self) -> None:
        """The engine process is gone: every open request hears of it."""
        self.state = "dead"
        for task in self._tasks.values():
            task.cancel()
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink.fail(Unavailable("The engine stopped."))

    async def _run(self, request: GenerateRequest, sink: Sink) -> None:
        scripts = [list(self.script(request, index)) for index in range(request.n)]
        sent = 0
        alive = list(range(request.n))
        while alive:
            await asyncio.sleep(self.pace)
            self.steps += 1
            for index in alive[:]:
                if (request.request_id, index) in self.stopped:
                    sink.put(
                        SequenceOutput(request_id=request.request_id, index=index, token_ids=[], finish_reason="stop")
                    )
                    alive.remove(index)
                    continue
                output = self._step(request, index, scripts[index], sent)
                sink.put(output)
                if output.finish_reason is not None:
                    alive.remove(index)
            sent += 1
        self._sinks.pop(request.request_id, None)

    def _step(self, request: GenerateRequest, index: int, script: list[int], sent: int) -> SequenceOutput:
        """The script's next token; the end id once it is over; `length` where the request says so."""
        sampling = request.sampling
        eos = self._info.eos_token_ids[0]
        token = script[sent] if sent < len(script) else eos
        ends_by_id = token == eos and not sampling.ignore_eos
        room = self._info.max_model_len - len(request.prompt_token_ids)
        limit = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        finish: FinishReason | None = "stop" if ends_by_id else "length" if sent + 1 >= limit else None
        logprob = self.logprob or _logprob
        fails = self.fails_after is not None and sent >= self.fails_after
        return SequenceOutput(
            request_id=request.request_id,
            index=index,
            token_ids=[] if fails else [token],
            logprobs=None if sampling.logprobs is None or fails else [logprob(token, sampling.logprobs)],
            prompt_logprobs=self._prompt_logprobs(request) if sent == 0 and index == 0 else None,
            num_cached_tokens=self.cached_tokens,
            finish_reason="error" if fails else finish,
            stop_token_id=token if ends_by_id else None,
            error="The step failed." if fails else None,
        )

    def _prompt_logprobs(self, request: GenerateRequest) -> list[TokenLogprob | None] | None:
        count = request.sampling.prompt_logprobs
        if count is None:
            return None
        return [None, *(_logprob(token, count) for token in request.prompt_token_ids[1:])]


def _logprob(token: int, count: int) -> TokenLogprob:
    top = [(token if i == 0 else (token + i) % 256, -0.5 - i) for i in range(count)]
    return TokenLogprob(token, -0.5, 1, top)
