"""A process that compiles kernels into Triton's cache for a card that it need not see: it touches no GPU and no torch.

    python -m firsttoken.kernels.gpu.compile_worker 90

The number is the card's compute capability. Each line of standard input is a `kernel_list.Wanted`, each line of
standard output the answer: empty, or why it could not be compiled. It ends with its input, so with its parent too.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from contextlib import suppress

import msgspec
from triton.backends.nvidia import driver as nvidia

from firsttoken.kernels.gpu.absent_driver import absent
from firsttoken.kernels.gpu.kernel_list import Wanted


def build(wanted: Wanted) -> None:
    """Compiles it, and with Triton 3.6 the small C program that launches it: a machine without CUDA's driver cannot."""
    function = getattr(importlib.import_module(wanted.module), wanted.name)
    # Triton hashes a kernel otherwise after others that call the same functions, and names its file by the hash: so it
    # takes that of the process that will launch it.
    function.hash = wanted.source
    kernel = function.preload(wanted.form)
    if hasattr(nvidia, "make_launcher"):
        with suppress(AssertionError, OSError, subprocess.SubprocessError):
            nvidia.CudaLauncher(kernel.src, kernel.metadata)


def answer(line: bytes) -> str:
    """What the parent is told of one line; it meets the error again where it needs this kernel."""
    try:
        build(msgspec.json.decode(line, type=Wanted))
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)  # what compilers print is no answer
    with absent(divmod(int(sys.argv[1]), 10)):
        for line in sys.stdin.buffer:
            print(answer(line), file=answers, flush=True)


if __name__ == "__main__":
    main()
