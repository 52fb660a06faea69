"""What the engine counts for /metrics. Names, units and meanings are vLLM's, without its prefix."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from firsttoken.engine.sequence import Sequence
from firsttoken.wire import EngineStats, Histogram

# vLLM's bounds, so that existing dashboards work; those of a token's time go on below its first, 10 ms.
_TTFT = [
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
]
_TOKEN = [0.001, 0.002, 0.003, 0.004, 0.005, 0.0075]
_TOKEN += [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
_REQUEST = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
_COUNT = [1, 2, 5, 10, 20]
_ITERATION = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]


class _Bins:
    """A histogram that costs one bisection an observation; it becomes cumulative when it is read."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: list[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def read(self) -> Histogram:
        return Histogram(list(self.bounds), list(accumulate(self.counts)), self.total)


class EngineCounters:
    """Counters and histograms since the start. A sequence of a request with n > 1 counts as one request, as in vLLM;
    its prompt's tokens count once.
    """

    def __init__(self, max_model_len: int) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_cache_queries = 0  # prompt tokens looked up
        self.prefix_cache_hits = 0  # prompt tokens found
        self.preemptions = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.busy_seconds = 0.0  # in which steps followed each other
        self.wait_seconds = 0.0  # of these, in which the host waited for the device
        self.read_bytes = 0  # the least that the steps had to read, by `WorkCost`
        self.flops = 0
        tokens = one_two_five(max_model_len)
        self._ttft = _Bins(_TTFT)
        self._itl = _Bins(_TOKEN)
        self._tpot = _Bins(_TOKEN)
        self._e2e = _Bins(_REQUEST)
        self._queue = _Bins(_REQUEST)
        self._prefill = _Bins(_REQUEST)
        self._decode = _Bins(_REQUEST)
        self._inference = _Bins(_REQUEST)
        self._prompt = _Bins(tokens)
        self._generation = _Bins(tokens)
        self._iteration = _Bins([float(bound) for bound in _ITERATION])
        self._n = _Bins([float(bound) for bound in _COUNT])
        self._max_tokens = _Bins(tokens)
        self._longest = _Bins(tokens)
        self._longest_so_far: dict[str, int] = {}  # by id, of requests some of whose sequences have ended

    @property
    def mean_e2e(self) -> float:
        """Mean seconds from arrival to end of the requests so far; 0 before the first."""
        return self._e2e.total / max(1, sum(self._e2e.counts))

    def step(self, now: float, num_tokens: int, first: list[float], last: dict[float, int]) -> None:
        """One collected step: its tokens, the arrivals of the sequences that got their first token, and for the
        others how many got a token after one at each time. Rows that decode together share that time.
        """
        self._iteration.observe(num_tokens)
        for arrival in first:
            self._ttft.observe(now - arrival)
        for before, times in last.items():
            self._itl.observe(now - before, times)

    def work(self, read_bytes: int, flops: int) -> None:
        """What a collected step had to read and compute at least."""
        self.read_bytes += read_bytes
        self.flops += flops

    def finish(self, seq: Sequence, now: float, *, ends_request: bool) -> None:
        """One finished sequence, whatever its reason; `ends_request` where it was the last of its request."""
        assert seq.finish_reason is not None
        self.finished[seq.finish_reason] += 1
        arrival, scheduled, first, last = seq.request.arrival, seq.first_scheduled, seq.first_token, seq.last_token
        tokens = seq.num_output_tokens
        self._e2e.observe(now - arrival)
        self._prompt.observe(seq.num_prompt_tokens)
        self._generation.observe(tokens)
        self._finish_request(seq, ends_request)
        if scheduled is None:
            return
        self._queue.observe(scheduled - arrival)
        self._inference.observe(now - scheduled)
        if first is None or last is None:
            return
        self._prefill.observe(first - scheduled)
        self._decode.observe(last - first)
        if tokens > 1:
            self._tpot.observe((last - first) / (tokens - 1))

    def _finish_request(self, seq: Sequence, ended: bool) -> None:
        request = seq.request
        longest = max(seq.num_output_tokens, self._longest_so_far.pop(request.request_id, 0))
        if not ended:
            self._longest_so_far[request.request_id] = longest
            return
        self._longest.observe(longest)
        self._n.observe(request.n)
        if request.sampling.max_tokens is not None:
            self._max_tokens.observe(request.sampling.max_tokens)

    def read(self, *, running: int, waiting: int, kv_cache_usage: float) -> EngineStats:
        """Everything, with the gauges as they are now."""
        return EngineStats(
            gauges={
                "num_requests_running": running,
                "num_requests_waiting": waiting,
                "kv_cache_usage_perc": kv_cache_usage,
            },
            counters={
                "prompt_tokens_total": self.prompt_tokens,
                "generation_tokens_total": self.generation_tokens,
                "prefix_cache_queries_total": self.prefix_cache_queries,
                "prefix_cache_hits_total": self.prefix_cache_hits,
                "num_preemptions_total": self.preemptions,
                "engine_busy_seconds_total": self.busy_seconds,
                "engine_device_wait_seconds_total": self.wait_seconds,
                "estimated_read_bytes_per_gpu_total": self.read_bytes,
                "estimated_flops_per_gpu_total": self.flops,
            },
            finished=dict(self.finished),
            histograms={
                "time_to_first_token_seconds": self._ttft.read(),
                "inter_token_latency_seconds": self._itl.read(),
                "request_time_per_output_token_seconds": self._tpot.read(),
                "e2e_request_latency_seconds": self._e2e.read(),
                "request_queue_time_seconds": self._queue.read(),
                "request_prefill_time_seconds": self._prefill.read(),
                "request_decode_time_seconds": self._decode.read(),
                "request_inference_time_seconds": self._inference.read(),
                "request_prompt_tokens": self._prompt.read(),
                "request_generation_tokens": self._generation.read(),
                "request_max_num_generation_tokens": self._longest.read(),
                "request_params_n": self._n.read(),
                "request_params_max_tokens": self._max_tokens.read(),
                "iteration_tokens_total": self._iteration.read(),
            },
        )


def one_two_five(largest: int) -> list[float]:
    """1, 2, 5, 10, 20, ... up to `largest`."""
    bounds: list[float] = []
    decade = 1
    while decade <= largest:
        bounds += [float(decade * digit) for digit in (1, 2, 5) if decade * digit <= largest]
        decade *= 10
    return bounds
