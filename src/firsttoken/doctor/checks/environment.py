"""Environment variables that change how a server runs, often forgotten ones of some debugging."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firsttoken.doctor.finding import Finding, Verdict

_AREA = "environment"
_LOOPBACK = ("localhost", "127.0.0.1", "*")
PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")  # may hold a password


def _on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def _always(value: str) -> bool:
    return True


def _any_gpu_hidden(value: str) -> bool:
    return value in ("", "-1", "none", "void")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; where `matters` says so of its value it is told, with this verdict."""

    name: str
    verdict: Verdict
    why: str
    matters: Callable[[str], bool] = _on
    keep: str = ""  # what to do instead of unsetting it


KNOWN = (
    Variable("CUDA_LAUNCH_BLOCKING", "bad", "The host waits for each kernel: nothing overlaps any more."),
    Variable("CUDA_VISIBLE_DEVICES", "bad", "It hides every card, so the model runs on the CPU.", _any_gpu_hidden),
    Variable(
        "NVIDIA_VISIBLE_DEVICES", "bad", "The container is given no card.", lambda value: value in ("none", "void")
    ),
    Variable(
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "bad",
        "Programs get that share of the card's processors and no more.",
        lambda value: value.strip() not in ("", "100"),
    ),
    Variable(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "warn",
        "With one queue, copies and kernels wait in line.",
        lambda value: value == "1",
    ),
    Variable("CUDA_CACHE_DISABLE", "warn", "Kernels that the driver compiles are compiled again at each start."),
    Variable(
        "CUDA_FORCE_PTX_JIT", "warn", "The driver compiles all kernels anew instead of taking those in the libraries."
    ),
    Variable(
        "CUDA_MODULE_LOADING",
        "warn",
        "Every kernel of every library is loaded at the start: slower, and more memory.",
        lambda value: value.upper() == "EAGER",
    ),
    Variable("CUDA_INJECTION64_PATH", "warn", "A profiler sits in every CUDA program and slows each launch.", _always),
    Variable(
        "PYTORCH_NO_CUDA_MEMORY_CACHING", "bad", "Each tensor is allocated by the driver, which waits for the card."
    ),
    Variable("TRITON_INTERPRET", "bad", "Kernels run as Python on the host instead of on the card."),
    Variable("TRITON_ALWAYS_COMPILE", "warn", "Kernels are compiled again at each start."),
    Variable(
        "NVIDIA_TF32_OVERRIDE",
        "warn",
        "It changes how exact float32 products are, whatever the program asks for.",
        _always,
    ),
    Variable(
        "CUBLAS_WORKSPACE_CONFIG",
        "warn",
        "It limits the memory that the library's products may use, and with it which of them can be chosen.",
        _always,
    ),
    Variable(
        "LD_LIBRARY_PATH",
        "warn",
        "Another CUDA's libraries come before those that torch brought along, and the mixture may fail or be slow.",
        lambda value: re.search(r"/cuda[-/]|cudnn|/cuda($|:)", value) is not None,
        "Take the CUDA folders out of it; torch needs none of them.",
    ),
    Variable(
        "LD_PRELOAD",
        "warn",
        "It puts a library into every program; allocators are harmless, tracers are not.",
        _always,
        "Look whether it is meant.",
    ),
    Variable("PYTHONDEVMODE", "warn", "Python checks itself at every step: the server's loop slows down."),
    Variable("PYTHONASYNCIODEBUG", "warn", "Each coroutine is traced, and HTTP slows down."),
    Variable("PYTHONTRACEMALLOC", "warn", "Each allocation of Python's is recorded."),
    Variable(
        "FIRSTTOKEN_CPU_ARCH",
        "warn",
        "The CPU's kernels are compiled without the widest instructions.",
        lambda value: value in ("plain", "avx2"),
    ),
    Variable("HF_HUB_OFFLINE", "ok", "Nothing is downloaded: models must be here already."),
    Variable("HF_ENDPOINT", "ok", "Models come from that address.", _always),
)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
NAMES = (*(one.name for one in KNOWN), *THREADS, *PROXIES, "no_proxy", "NO_PROXY")


def known_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those of `environ` that the checks know; of a proxy's address only that there is one."""
    return {name: "set" if name in PROXIES else environ[name] for name in NAMES if name in environ}


def check_environment(environment: Mapping[str, str], cores: int, has_card: bool) -> list[Finding]:
    """One finding a variable that matters; one for all where none does."""
    found = [
        Finding(_AREA, one.name, one.verdict, f"is {value!r}", one.why, _fix(one))
        for one in KNOWN
        if (value := environment.get(one.name)) is not None and one.matters(value)
    ]
    found += [*_threads(environment, cores, has_card), *_proxies(environment)]
    why = "Variables set for debugging, or by a module system, slow a server down without a word."
    if any(one.verdict != "ok" for one in found):
        return found
    return [*found, Finding(_AREA, "variables", "ok", f"none of the {len(NAMES)} known ones does harm", why)]


def _threads(environment: Mapping[str, str], cores: int, has_card: bool) -> list[Finding]:
    why = "It limits the threads that compute the model on a CPU."
    fix = "Unset it, or serve with --cpu-threads."
    return [
        Finding(_AREA, name, "warn", f"is {value!r}, with {cores} usable cores", why, f"{fix}")
        for name in THREADS
        if not has_card and (value := environment.get(name, "")).isdigit() and int(value) < cores
    ]


def _proxies(environment: Mapping[str, str]) -> list[Finding]:
    """Clients on this machine that honour a proxy send it what is meant for the server beside them."""
    kept_out = f"{environment.get('no_proxy', '')},{environment.get('NO_PROXY', '')}".split(",")
    if {part.strip() for part in kept_out} & set(_LOOPBACK):
        return []
    why = "Clients on this machine ask the proxy for the server beside them: slow, or refused."
    fix = "Run `export no_proxy=localhost,127.0.0.1` beside it."
    names = [name for name in PROXIES if environment.get(name)]
    return (
        [Finding(_AREA, names[0], "warn", "is set, and no_proxy does not name this machine", why, fix)] if names else []
    )


def _fix(one: Variable) -> str:
    if one.verdict == "ok":
        return ""
    return one.keep or f"Run `unset {one.name}`, unless it is meant."
