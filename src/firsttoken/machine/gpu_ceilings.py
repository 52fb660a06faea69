"""What a card can do at best, measured once a month and card, or given by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from pathlib import Path

from firsttoken.errors import ConfigError
from firsttoken.machine.ceilings import MemoryCeiling, default_cache
from firsttoken.machine.gpu import Gpu, Runner

_BELIEVED_FOR = timedelta(days=30)
_MAY_LACK = ("fp8_product", "launch", "host_to_device", "sm_clock_mhz", "memory_clock_mhz")
_PROBE_SECONDS = 120  # importing torch from a cold disk can take most of it


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The best rates of the device that holds the model. A rate that nobody measured is None, never a guess."""

    device: str  # "NVIDIA H200", "2x NVIDIA H200", "CPU (16 threads)"
    read: float | None = None  # bytes a second
    copy: float | None = None  # bytes a second, read and written together
    product: float | None = None  # FLOP/s in bfloat16
    cache_bytes: int = 0  # of the last cache: a step can find that much there instead of reading it
    measured_on: str = ""  # ISO date; empty where the values were given
    driver: str = ""
    fp8_product: float | None = None  # FLOP/s in FP8 (e4m3)
    launch: float | None = None  # seconds that the host takes for one small kernel
    host_to_device: float | None = None  # bytes a second from pinned memory
    sm_clock_mhz: float | None = None  # while the product was measured
    memory_clock_mhz: float | None = None

    @property
    def complete(self) -> bool:
        """Whether everything was measured that the probe measures; older versions measured less."""
        return self.launch is not None

    def times(self, devices: int) -> Ceilings:
        """The same for a model that is split evenly over several such devices."""
        if devices == 1:
            return self

        def all_of(rate: float | None) -> float | None:
            return None if rate is None else rate * devices

        return replace(
            self,
            device=f"{devices}x {self.device}",
            read=all_of(self.read),
            copy=all_of(self.copy),
            product=all_of(self.product),
            fp8_product=all_of(self.fp8_product),
            cache_bytes=self.cache_bytes * devices,
        )

    def with_given(
        self, *, read: float | None = None, copy: float | None = None, product: float | None = None
    ) -> Ceilings:
        """These, except for what the user says that he knows better."""
        return replace(self, read=read or self.read, copy=copy or self.copy, product=product or self.product)

    def as_figures(self) -> dict[str, float]:
        """Names with units, for a file; what is unknown is left out."""
        named = {
            "read_bytes_per_s": self.read,
            "copy_bytes_per_s": self.copy,
            "product_flops_per_s": self.product,
            "cache_bytes": float(self.cache_bytes) or None,
        }
        return {name: value for name, value in named.items() if value is not None}


def host_ceilings(memory: MemoryCeiling, sysfs: Path = Path("/sys/devices/system/cpu")) -> Ceilings:
    """Of a model that runs on the CPU: its memory. A product has none, because its forms differ too much in width."""
    return Ceilings(
        f"CPU ({memory.threads} threads)",
        read=memory.bytes_per_second,
        cache_bytes=_last_cache(sysfs),
        measured_on=memory.measured_on,
    )


def gpu_ceilings(
    gpu: Gpu, cache: Path | None = None, today: date | None = None, run: Runner | None = None, *, refresh: bool = False
) -> Ceilings:
    """What `gpu` can do: this month's measurement under the same driver, or a new one of about ten seconds.

    Measure while the card is otherwise idle; `refresh` measures again and keeps the better of each rate. Raises
    ConfigError, in one sentence, where it cannot be measured.
    """
    cache = cache or _cache_of(gpu)
    today = today or date.today()
    known = known_ceilings(gpu, cache, today)
    if known is not None and not refresh:
        return known
    fresh = _measure(gpu, today, run or _run_probe)
    if known is not None:  # other work on the card can only lower a reading, so the higher one is nearer to the truth
        fresh = replace(
            fresh,
            read=_better(fresh.read, known.read),
            copy=_better(fresh.copy, known.copy),
            product=_better(fresh.product, known.product),
            fp8_product=_better(fresh.fp8_product, known.fp8_product),
            launch=_better(fresh.launch, known.launch, min),
            host_to_device=_better(fresh.host_to_device, known.host_to_device),
        )
    with suppress(OSError):  # a read-only home only means that nothing is remembered
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(asdict(fresh)) + "\n")
    return fresh


def known_ceilings(gpu: Gpu, cache: Path | None = None, today: date | None = None) -> Ceilings | None:
    """This month's measurement of `gpu` under its driver, if there is one; never measures. Raises ConfigError."""
    known = _read(cache or _cache_of(gpu))
    if known is None or (known.device, known.driver) != (gpu.name, gpu.driver):
        return None
    today = today or date.today()
    return known if today - date.fromisoformat(known.measured_on) < _BELIEVED_FOR else None


def _better(fresh: float | None, known: float | None, choose: Callable[..., float] = max) -> float | None:
    both = [value for value in (fresh, known) if value is not None]
    return choose(both) if both else None


def _measure(gpu: Gpu, today: date, run: Runner) -> Ceilings:
    try:
        output = run([sys.executable, "-P", "-m", "firsttoken.machine.gpu_probe", str(gpu.index)])
        found = json.loads(output)
        return Ceilings(
            device=gpu.name,
            read=_rate(found, "read"),
            copy=_rate(found, "copy"),
            product=_rate(found, "product"),
            cache_bytes=int(found["cache_bytes"]),
            measured_on=today.isoformat(),
            driver=gpu.driver,
            **{name: None if found[name] is None else _rate(found, name) for name in _MAY_LACK},
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        why = lines[-1] if lines else f"exit code {error.returncode}"
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        why = str(error)
    raise ConfigError(f"The ceilings of {gpu.name} could not be measured ({why}); give them by hand instead.")


def _rate(found: Mapping[str, object], name: str) -> float:
    value = float(str(found[name]))
    if not 0 < value < 1e18:
        raise ValueError(f"a {name} rate of {value:g}")
    return value


def _run_probe(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PROBE_SECONDS).stdout


def _cache_of(gpu: Gpu) -> Path:
    card = re.sub(r"[^a-z0-9]+", "-", gpu.name.lower()).strip("-")
    return default_cache().with_name(default_cache().name.replace("memory-ceiling", f"{card}-{gpu.index}"))


def _read(cache: Path) -> Ceilings | None:
    try:
        known = Ceilings(**json.loads(cache.read_text()))
        date.fromisoformat(known.measured_on)
        whole = all(isinstance(rate, float) and rate > 0 for rate in (known.read, known.copy, known.product))
        others = [getattr(known, name) for name in _MAY_LACK]
        whole = whole and all(rate is None or (isinstance(rate, float) and rate > 0) for rate in others)
    except (OSError, ValueError, TypeError):
        return None
    return known if whole else None


def _last_cache(sysfs: Path) -> int:
    """Bytes of the last-level caches of all sockets, each counted once; 0 where the system does not tell."""
    found: dict[str, int] = {}
    for index in sysfs.glob("cpu[0-9]*/cache/index3"):
        try:
            size, shared = (index / "size").read_text().strip(), (index / "shared_cpu_list").read_text().strip()
            found[shared] = int(size.removesuffix("K")) * 1024 if size.endswith("K") else int(size)
        except (OSError, ValueError):
            continue
    return sum(found.values())
