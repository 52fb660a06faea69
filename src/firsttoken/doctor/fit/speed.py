"""How fast a model can be on a device, and how fast firsttoken will be there: floors, and one prediction.

A floor is the roofline (Williams et al. 2009): the bytes that must be read and the arithmetic that must be done, each
at the device's best rate, overlapped perfectly. The prediction is the same sum with the shares of those rates that
firsttoken's kernels reached on an NVIDIA H200 on 2026-12-01 and 02, as docs/performance.md tells. They are shares of
measured ceilings, so they carry over to other cards as far as the kernels do; nothing else is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from firsttoken.model import cost
from firsttoken.model.config import ModelConfig

_SOME_ROWS, _MANY_ROWS = 16, 64  # what products of more rows than a few were timed with
# Of the memory's rate, where attention reads keys and values of two bytes: 0.70 for one sequence of 32,768 tokens,
# 0.84 for 256 of 640. Of one byte: 0.56 for 64 sequences of 512 tokens, 0.70 for one of 32,768.
KV_READ, KV_READ_FP8 = 0.75, 0.57
_ATTENTION_PRODUCT = 0.65  # causal attention of prompts: 0.60 at 4096 tokens, 0.73 at 32,768
_LAYER = 7e-6  # seconds a layer in which its kernels wait for one another
_REQUEST = 2.5e-3  # seconds of a request outside its prefill: HTTP, the tokeniser, two hops, the step under way
# Seconds between two prompts of which neither holds the other's stream up a second time: three steps of serve's
# --max-step-ms, in which an end is sampled, collected and answered by the next question.
_TOGETHER = 3 * 0.055
# What measured ceilings were of the data sheet's on that card: 4.38 of 4.8 TB/s, 799 of 989 TFLOP/s
SHEET_READ, SHEET_PRODUCT = 0.91, 0.81
_H200_READ, _H200_SMS = 4.38e12, 132
_CPU_READ = 0.88  # of the memory's rate, one sequence, low-bit weights: 184 of 210 tok/s on two cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of the rates that a step's products reach, which read the weights once. Of the product's in bfloat16."""

    few_rows: float  # of the memory's rate
    some_rows: float  # of the same, for more rows, to 16
    many_rows: float  # of the same, for 64; between these the time grows evenly
    product: float  # of the arithmetic rate
    few: int = 2  # the most rows that take the matrix-vector kernel
    by_instructions: bool = False  # what the first three are bound by: then they are an H200's, see `_weights_read`

    def read(self, rows: int) -> float:
        """Of the memory's rate, for so many rows."""
        if rows <= self.few:
            return self.few_rows
        part = min(max(rows - _SOME_ROWS, 0) / (_MANY_ROWS - _SOME_ROWS), 1.0)
        share = 1 / ((1 - part) / self.some_rows + part / self.many_rows)
        # Up to twice as many rows are two blocks, each of which takes the weights apart: arithmetic, nobody timed it
        return share / 2 if self.by_instructions and _MANY_ROWS < rows <= 2 * _MANY_ROWS else share


# One row reads 4.22 of 4.41 TB/s; the library's products at 3 to 64 rows take 2.65 ms for 8.04 GB, whose floor is 1.84;
# the arithmetic rate: 0.86 at 4096 rows, 0.71 at 256.
DENSE = Shares(few_rows=0.96, some_rows=0.69, many_rows=0.69, product=0.80)
# From TPOT at one stream and TTFT of 4096 tokens, int8's from a step of one row; from steps of 16 and 64 rows of 512
# tokens; tests/doctor/fit/h200.json has the rest. FP8's prompts multiply in FP8.
QUANTISED = {
    "fp8": Shares(few_rows=0.82, some_rows=0.56, many_rows=0.42, product=1.15, few=1, by_instructions=True),
    "int8": Shares(few_rows=0.81, some_rows=0.30, many_rows=0.24, product=0.74, few=1, by_instructions=True),
    "int4": Shares(few_rows=0.51, some_rows=0.145, many_rows=0.134, product=0.74, few=1, by_instructions=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of the device that holds the model. None is unknown, and then what hangs on it is not told."""

    kind: str  # "cuda" or "cpu"
    read: float | None = None  # bytes a second
    product: float | None = None  # FLOP/s
    sms: int | None = None  # streaming multiprocessors
    from_sheet: bool = False  # as the data sheet promises, which no kernel reaches
    origin: str = ""  # for the reader

    @property
    def reachable_read(self) -> float | None:
        return self.read if self.read is None or not self.from_sheet else self.read * SHEET_READ

    @property
    def reachable_product(self) -> float | None:
        return self.product if self.product is None or not self.from_sheet else self.product * SHEET_PRODUCT


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: `streams` clients that each ask, read the whole answer, and ask again."""

    streams: int
    prompt: int  # tokens, none of them cached
    output: int  # tokens

    @property
    def context(self) -> float:
        """Tokens in a stream's cache, on average over its decoding."""
        return self.prompt + self.output / 2


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds and tokens a second; None is not known."""

    ttft: float | None
    tpot: float | None
    tokens_per_s: float | None  # of all streams together


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The times of one model, in one form, on one device. `weight_bytes` are those that a decode step reads."""

    config: ModelConfig
    weight_bytes: float
    kv_bytes_per_token: float
    rates: Rates
    shares: Shares = DENSE
    kv_read: float = KV_READ

    def floor(self, load: Load) -> Speed:
        """What no server can undercut: decoding alone for TPOT and tok/s, the prompt alone for TTFT."""
        read, product = self.rates.read, self.rates.product
        if read is None:
            return Speed(None, None, None)
        kv = load.streams * load.context * self.kv_bytes_per_token
        flops = load.streams * cost.decode_flops(self.config, round(load.context))
        step = max((self.weight_bytes + kv) / read, 0.0 if product is None else flops / product)
        prompt = cost.prefill_flops(self.config, load.prompt) + cost.head_flops(self.config)
        ttft = None if product is None else max(self.weight_bytes / read, prompt / product)
        return Speed(ttft, step, load.streams / step)

    def predict(self, load: Load) -> Speed:
        """What firsttoken's client sees in the middle of its streams, when the prompts of others hold it up."""
        if self.rates.kind == "cpu":
            return self._predict_cpu(load)
        read, product = self.rates.reachable_read, self.rates.reachable_product
        if read is None or product is None:
            return Speed(None, None, None)
        prefill = self._prefill(load.prompt, read, product)
        decode, gaps = self._decode(load, read, product), max(1, load.output - 1)
        tpot = decode + _prompts_between(load.streams, prefill) * prefill / gaps
        round_trip = _REQUEST + load.streams * prefill + (load.output - 1) * decode  # in which each stream answers once
        return Speed(_REQUEST + prefill, tpot, load.streams * load.output / round_trip)

    def first_tokens_at_once(self, load: Load) -> float | None:
        """Seconds to the first token, on average over the streams, should all of them ask in the same moment."""
        read, product = self.rates.reachable_read, self.rates.reachable_product
        if self.rates.kind == "cpu" or read is None or product is None:
            return None
        return _REQUEST + (load.streams + 1) / 2 * self._prefill(load.prompt, read, product)

    def _decode(self, load: Load, read: float, product: float) -> float:
        """Seconds of a step that decodes every stream."""
        attended = load.streams * load.context * self.kv_bytes_per_token / (read * self.kv_read)
        return self._products(load.streams, load.streams, read, product) + attended + self._waits

    def _prefill(self, tokens: int, read: float, product: float) -> float:
        """Seconds of the step that computes a prompt."""
        attended = cost.attention_flops(self.config, tokens, tokens) / (product * _ATTENTION_PRODUCT)
        return self._products(tokens, 1, read, product) + attended + self._waits

    def _products(self, rows: int, heads: int, read: float, product: float) -> float:
        """Seconds of all products for `rows` tokens, `heads` of which get logits."""
        flops = rows * cost.layer_flops(self.config) + heads * cost.head_flops(self.config)
        return max(self._weights_read(rows, read), flops / (product * self.shares.product))

    def _weights_read(self, rows: int, read: float) -> float:
        """Seconds to read the weights once, and to take quantised ones apart.

        The instructions for that are the bound on an H200, which has 33 GB/s for each multiprocessor. Most cards have a
        half to a quarter of that: there the same instructions are spread over their multiprocessors, and the memory is
        the bound where it takes longer. Clocks are taken to be alike.
        """
        share = self.shares.read(rows)
        if not self.shares.by_instructions or self.rates.sms is None:
            return self.weight_bytes / (read * share)
        taken_apart = self.weight_bytes / (_H200_READ * share) * _H200_SMS / self.rates.sms
        return max(taken_apart, self.weight_bytes / (read * DENSE.read(rows)))

    @property
    def _waits(self) -> float:
        return self.config.num_layers * _LAYER

    def _predict_cpu(self, load: Load) -> Speed:
        """One stream alone: more rows are bound by arithmetic, whose rate differs too much between processors."""
        if self.rates.read is None or load.streams > 1:
            return Speed(None, None, None)
        tpot = (self.weight_bytes + load.context * self.kv_bytes_per_token) / (self.rates.read * _CPU_READ)
        return Speed(None, tpot, None)


def _prompts_between(streams: int, prefill: float) -> float:
    """How many prompts, of `prefill` seconds each, are computed between a middle stream's first and last token.

    Clients that began at once stay in step: a stream waits for the prompts computed behind its own, on average half of
    them, and has ended before those ahead of it ask again. Where all prompts take longer than that, it waits for these
    too.
    """
    return max((streams - 1) / 2, min(streams - 1, streams - _TOGETHER / prefill))
