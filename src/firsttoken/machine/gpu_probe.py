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
from contextlib import suppress
from dataclasses import asdict, dataclass

import torch

from firsttoken.machine.gpu_sensors import open_sensors

_GIB = 1024**3
_EDGE = 8192  # of the square product
_SECONDS = 0.3  # for each form: long enough for the clocks to rise
_FIRST_FP8 = (8, 9)  # compute capability
_LAUNCHES = 1000
_LINK_BYTES = _GIB // 4

Clocks = tuple[float | None, float | None]
"""MHz of the cores and of the memory."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Best rates seen, and the cache that can keep bytes from being read again."""

    name: str
    read: float  # bytes a second
    copy: float  # bytes a second, those read and those written together
    product: float  # FLOP/s of a large square product in bfloat16
    cache_bytes: int
    fp8_product: float | None  # FLOP/s likewise in FP8 (e4m3); None where the card has none
    launch: float  # seconds that the host takes for one of many small kernels
    host_to_device: float  # bytes a second from pinned memory
    sm_clock_mhz: float | None  # under the product
    memory_clock_mhz: float | None


def measure(
    device: torch.device,
    num_bytes: int,
    edge: int,
    seconds: float = _SECONDS,
    clocks: Callable[[], Clocks] = lambda: (None, None),
) -> Probe:
    """Reads and copies `num_bytes`, multiplies [edge, edge] matrices; the best of many rounds each, about 3 s in all.

    Reading is tried in several forms, because libraries differ in which one they do well on a given card. `clocks` is
    asked while products run.
    """
    read, copy = _memory_rates(device, num_bytes, seconds)
    product, (sm_clock, memory_clock) = _product_rate(device, edge, seconds, clocks)
    name, cache, fp8 = "cpu", 0, None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, cache = str(properties.name), int(properties.L2_cache_size)
        if (properties.major, properties.minor) >= _FIRST_FP8:
            with suppress(RuntimeError):  # a torch whose library has none for this card
                fp8 = fp8_rate(device, edge, seconds)
    link = host_to_device_rate(device, min(_LINK_BYTES, num_bytes), seconds)
    return Probe(
        name=name,
        read=read,
        copy=copy,
        product=product,
        cache_bytes=cache,
        fp8_product=fp8,
        launch=launch_seconds(device),
        host_to_device=link,
        sm_clock_mhz=sm_clock,
        memory_clock_mhz=memory_clock,
    )


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


def _product_rate(
    device: torch.device, edge: int, seconds: float, clocks: Callable[[], Clocks]
) -> tuple[float, Clocks]:
    """FLOP/s, and the clocks while it was reached."""
    a = torch.randn(edge, edge, device=device).to(torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)
    rate = 2 * edge**3 / _best_seconds(lambda: torch.mm(a, b, out=out), device, seconds)
    for _ in range(max(1, round(0.2 * rate / (2 * edge**3))) if device.type == "cuda" else 0):
        torch.mm(a, b, out=out)  # 0.2 s of them, queued
    return rate, clocks()


def fp8_rate(device: torch.device, edge: int, seconds: float) -> float:
    """FLOP/s of a square product of e4m3 matrices, one scale each. Raises RuntimeError where the device has none."""
    a = torch.randn(edge, edge, device=device).to(torch.float8_e4m3fn)
    b = torch.randn(edge, edge, device=device).to(torch.float8_e4m3fn).t()  # the library wants it column by column
    one = torch.ones((), device=device)

    def multiply() -> object:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

    return 2 * edge**3 / _best_seconds(multiply, device, seconds)


def launch_seconds(device: torch.device, launches: int = _LAUNCHES) -> float:
    """Wall seconds of one of `launches` small kernels, each asked for through torch; the best of five rounds."""
    x = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(launches):
            x.add_(1.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    launch()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        launch()
        best = min(best, time.perf_counter() - start)
    return best / launches


def host_to_device_rate(device: torch.device, num_bytes: int, seconds: float) -> float:
    """Bytes a second of copies from memory that the card can read by itself."""
    source = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    target = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    return num_bytes / _best_seconds(lambda: target.copy_(source, non_blocking=True), device, seconds)


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
    sensors = open_sensors()

    def clocks() -> Clocks:
        if isinstance(sensors, str):
            return None, None
        reading = sensors.read(index)
        return reading.sm_clock_mhz, reading.memory_clock_mhz

    print(json.dumps(asdict(measure(device, num_bytes, edge, clocks=clocks))))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
