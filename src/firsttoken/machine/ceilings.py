"""What this machine's memory can do at best: a decode step reads every weight once, so this bounds its speed."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path

from firsttoken.cache import cache_folder
from firsttoken.errors import ConfigError
from firsttoken.machine.host import Host, read_host

_MIB = 1024 * 1024
_BYTES_A_THREAD = 128 * _MIB
_MAX_THREADS = 32  # a socket's memory is saturated by fewer
_BELIEVED_FOR = timedelta(days=30)  # a virtual machine may have moved since


@dataclass(frozen=True, slots=True)
class MemoryCeiling:
    """Measured sequential read bandwidth of the host's memory."""

    bytes_per_second: float
    threads: int
    measured_on: str  # ISO date

    def decode_ceiling(self, bytes_per_token: float) -> float:
        """Tokens a second that no decoder can pass which reads `bytes_per_token` from memory for each."""
        return self.bytes_per_second / bytes_per_token


def measure_memory(
    threads: int | None = None, bytes_a_thread: int | None = None, rounds: int = 5, host: Host | None = None
) -> MemoryCeiling:
    """Reads memory with every core at once and takes the best of `rounds`; about 0.2 s on two cores.

    `memchr` looks for a byte that is not there: the C library reads with the widest loads the processor has, writes
    nothing, and ctypes releases the interpreter lock meanwhile.
    """
    host = host or read_host()
    threads = threads or min(host.cores, _MAX_THREADS)
    # A quarter of what is free at most: a measurement must not push anyone out of memory.
    size = bytes_a_thread or max(_MIB, min(_BYTES_A_THREAD, host.memory_available // (4 * threads)))
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    memchr.restype = ctypes.c_void_p
    start_together = threading.Barrier(threads)
    spans: list[list[tuple[float, float]]] = [[] for _ in range(threads)]

    def read(spans_here: list[tuple[float, float]]) -> None:
        buffer = ctypes.create_string_buffer(size)
        address = ctypes.addressof(buffer)
        ctypes.memset(address, 1, size)  # untouched pages would all be one page of zeros, read from the cache
        for _ in range(rounds):
            start_together.wait()
            start = time.perf_counter()
            memchr(address, 2, size)
            spans_here.append((start, time.perf_counter()))

    workers = [threading.Thread(target=read, args=(span,)) for span in spans]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    walls = (max(end for _, end in one) - min(start for start, _ in one) for one in zip(*spans, strict=True))
    return MemoryCeiling(threads * size / min(walls), threads, date.today().isoformat())


def memory_ceiling(cache: Path | None = None, today: date | None = None) -> MemoryCeiling:
    """Measures, and returns the best that this machine has shown within a month, which `cache` remembers.

    Other work on the machine can only lower a reading, so the highest one is nearest to the truth.
    """
    ceiling = measure_memory()
    try:
        cache = cache or default_cache()
    except ConfigError:
        return ceiling  # no home: nothing is remembered
    today = today or date.today()
    known = _read(cache)
    if (
        known is not None
        and known.threads == ceiling.threads
        and known.bytes_per_second >= ceiling.bytes_per_second
        and today - date.fromisoformat(known.measured_on) < _BELIEVED_FOR
    ):
        return known
    with suppress(OSError):  # a read-only home only means that nothing is remembered
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(asdict(ceiling)) + "\n")
    return ceiling


def known_memory_ceiling(cache: Path | None = None, today: date | None = None) -> MemoryCeiling | None:
    """What `memory_ceiling` has remembered within a month; never measures."""
    try:
        known = _read(cache or default_cache())
    except ConfigError:
        return None
    today = today or date.today()
    return known if known is not None and today - date.fromisoformat(known.measured_on) < _BELIEVED_FOR else None


def default_cache() -> Path:
    """Where the measurement is kept, one file a host: home folders are shared between machines. Raises ConfigError."""
    return cache_folder() / f"memory-ceiling-{os.uname().nodename}.json"


def _read(cache: Path) -> MemoryCeiling | None:
    try:
        ceiling = MemoryCeiling(**json.loads(cache.read_text()))
        date.fromisoformat(ceiling.measured_on)
    except (OSError, ValueError, TypeError):
        return None
    return ceiling if ceiling.bytes_per_second > 0 else None
