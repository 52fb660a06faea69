"""What a server's steps had to read and compute in a window, beside what its device can do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from firsttoken.bench.model_costs import ModelCosts
from firsttoken.doctor.live.reading import Window
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.model import cost

# What a firsttoken says of its weights; quantised forms first, since the words go on to the activations' dtype.
_BITS = (
    (r"(\d+)-bit weights", None),
    (r"\b(fp8|int8) weights", 8),
    (r"\bint4 weights", 4),
    (r"float16", 16),
    (r"float32", 32),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The model and the device, as far as they are known; each None comes with a sentence that says why."""

    costs: ModelCosts | None = None
    ceilings: Ceilings | None = None  # of all devices that share the model
    devices: int = 1
    on_cpu: bool = False
    slots: int | None = None  # sequences that may run at once, where the server tells
    weights: str = ""  # their form, in the server's words
    missing: tuple[str, ...] = ()

    @property
    def weight_bits(self) -> float | None:
        """Bits a weight that a step reads: by the server's words, else by the model's config."""
        for pattern, bits in _BITS:
            if (found := re.search(pattern, self.weights)) is not None:
                return float(bits or found[1])
        if self.costs is None or self.costs.config is None:
            return None
        return 8 * self.costs.weight_bytes / cost.decode_weight_bytes(self.costs.config, 1.0)


@dataclass(frozen=True, slots=True)
class Load:
    """A mean step: seconds that it took, and that reading and computing alone would have taken at the ceilings.

    What is unknown is None.
    """

    seconds: float
    read_bytes: float  # a second
    flops: float | None  # a second
    weights: float | None  # seconds
    context: float | None
    compute: float | None
    split: bool  # whether weights and contexts are known apart; else all bytes stand as weights

    @property
    def memory(self) -> float | None:
        return None if self.weights is None or self.context is None else self.weights + self.context

    @property
    def memory_share(self) -> float | None:
        return None if self.memory is None else self.memory / self.seconds

    @property
    def compute_share(self) -> float | None:
        return None if self.compute is None else self.compute / self.seconds

    def floor(self, *, weights: float = 1.0, context: float = 1.0, compute: float = 1.0) -> float:
        """Seconds that a step takes at least with so many times the bytes and FLOPs."""
        return max((self.weights or 0.0) * weights + (self.context or 0.0) * context, (self.compute or 0.0) * compute)

    def predicted(self, *, weights: float = 1.0, context: float = 1.0, compute: float = 1.0) -> float:
        """The same of a step as it runs here: what it takes above its floor, it goes on taking."""
        after = self.floor(weights=weights, context=context, compute=compute)
        return max(self.seconds + after - self.floor(), after)


def load_of(window: Window, bounds: Bounds) -> Load | None:
    """By the server's own count of bytes where it has one, else by tokens, steps and the model's shapes.

    None where nothing ran, or where neither is known.
    """
    steps = window.steps
    if not steps or not window.busy_seconds:
        return None
    num_bytes = window.added.read_bytes
    weight_bytes = None if bounds.costs is None else bounds.costs.weight_bytes * steps
    if num_bytes is not None:
        num_bytes *= bounds.devices
    elif bounds.costs is not None:
        assert weight_bytes is not None
        num_bytes = weight_bytes + steps * window.context * bounds.costs.kv_bytes_per_token
    else:
        return None
    flops = window.added.flops
    flops = flops * bounds.devices if flops is not None else _flops(window, bounds.costs)
    read = None if bounds.ceilings is None else bounds.ceilings.read
    product = None if bounds.ceilings is None else bounds.ceilings.product
    weights = num_bytes if weight_bytes is None else min(weight_bytes, num_bytes)
    return Load(
        seconds=window.busy_seconds / steps,
        read_bytes=num_bytes / window.busy_seconds,
        flops=None if flops is None else flops / window.busy_seconds,
        weights=None if read is None else weights / read / steps,
        context=None if read is None else (num_bytes - weights) / read / steps,
        compute=None if product is None or flops is None else flops / product / steps,
        split=weight_bytes is not None,
    )


def _flops(window: Window, costs: ModelCosts | None) -> float | None:
    if costs is None or costs.config is None:
        return None
    config, total = costs.config, 0.0
    if window.computed:
        prompts = max(1.0, window.added.firsts or 0.0)
        new = max(1, round(window.computed / prompts))
        length = max(new, round((window.added.prompt or 0.0) / prompts))
        total += window.computed * cost.layer_flops(config) + prompts * cost.head_flops(config)
        total += prompts * cost.attention_flops(config, new, length)
    each = window.context / window.streams if window.streams else 0.0
    return total + (window.added.generated or 0.0) * cost.decode_flops(config, round(each))
