"""What a GPU can do at best, measured with torch in a process of its own: `python -m firsttoken.machine.gpu_probe 0`.

Prints one JSON object. The only file of this part that imports torch: whoever wants the figures starts it, so that
neither torch nor a CUDA context enters the caller, and the memory is free again when it ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

_GIB = 1024**3
_EDGE = 8192  # of the square product
_SECONDS = 0.3  # for each form: long enough for the clocks to rise


@dataclass(frozen=True, slots=True)
class Probe:
    """Best rates seen, and the cache that can keep bytes from being read again."""

    name: str
    read: float  # bytes a second
    copy: float  # bytes a second, those read and those written together
    product: float  # FLOP/s of a large square product in bfloat16
    cache_bytes: int


def measure(device: torch.device, num_bytes: int, edge: int, seconds: float = _SECONDS) -> Probe:
    """Reads and copies `num_bytes`, multiplies [edge, edge] matrices; the best of many rounds each, about 2 s in all.

    Reading is tried in several forms, because libraries differ in which one they do well on a given card.
    """
    read, copy = _memory_rates(device, num_bytes, seconds)
    product = _product_rate(device, edge, seconds)
    if device.type != "cuda":
        return Probe("cpu", read, copy, product, 0)
    properties = torch.cuda.get_device_properties(device)
    return Probe(str(properties.name), read, copy, product, int(properties.L2_cache_size))


def _memory_rates(device: torch.device, num_bytes: int, seconds: float) -> tuple[float, float]:
    """Bytes a second read, and read and written together; what a copy moves can be read as well."""
    columns = 4096
    source = torch.ones(num_bytes // (2 * columns), columns, dtype=torch.bfloat16, device=device)
    target, vector = torch.empty_like(source), source[0].clone()
    size = source.numel() * source.element_size()
    words, floats = source.view(torch.int32).view(-1), source.view(torch.float32).view(-1)
    reads: list[Callable[[], object]] = [floats.sum, words.max, lambda: torch.mv(source, vector)]
    read = max(size / _best_seconds(form, device, seconds) for form in reads)
    copy = 2 * size / _best_seconds(lambda: target.copy_(source), device, seconds)
    return max(read, copy), copy


def _product_rate(device: torch.device, edge: int, seconds: float) -> float:
    a = torch.randn(edge, edge, device=device).to(torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)
    return 2 * edge**3 / _best_seconds(lambda: torch.mm(a, b, out=out), device, seconds)


def _best_seconds(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """The shortest of the rounds that fit into `seconds`, three at least, timed by the device's own clock."""
    work()
    best, rounds, end = float("inf"), 0, time.perf_counter() + seconds
    while rounds < 3 or time.perf_counter() < end:
        best = min(best, _seconds(work, device))
        rounds += 1
    return best


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def main(index: int) -> int:
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # counts as the driver does, whatever the user's settings hide
    os.environ["CUDA_VISIBLE_DEVICES"] = str(index)
    if not torch.cuda.is_available():
        print("torch finds no GPU that it can use", file=sys.stderr)
        return 1
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    free, _ = torch.cuda.mem_get_info(device)
    num_bytes, edge = min(2 * _GIB, free // 4), _EDGE
    while edge > 1024 and 10 * edge * edge > free // 2:
        edge //= 2
    print(json.dumps(asdict(measure(device, num_bytes, edge))))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
