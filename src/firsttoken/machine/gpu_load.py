"""Keeps a GPU and its link busy for a while, in a process of its own: `python -m firsttoken.machine.gpu_load 0 2.0`.

Prints a line when the card is at work, so that whoever watches its clocks does not watch torch being imported.
"""

from __future__ import annotations

import os
import sys
import time

import torch

_EDGE = 8192
_MIB = 1024 * 1024
_COPY_BYTES = 128 * _MIB


def keep_busy(device: torch.device, edge: int, copy_bytes: int, seconds: float) -> int:
    """Products, reads and copies from the host in turns, as a server's steps mix them; returns how many rounds ran."""
    a = torch.randn(edge, edge, device=device).to(torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)
    host = torch.empty(copy_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    target = torch.empty_like(host, device=device)
    torch.mm(a, b, out=out)  # the library is loaded and the memory taken before anyone is told
    target.copy_(host, non_blocking=True)
    _wait(device)
    print("working", flush=True)
    rounds, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        target.copy_(host, non_blocking=True)
        for _ in range(8):
            torch.mm(a, b, out=out)
        out.sum()
        _wait(device)
        rounds += 1
    return rounds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(index: int, seconds: float) -> int:
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # counts as the driver does, whatever the user's settings hide
    os.environ["CUDA_VISIBLE_DEVICES"] = str(index)
    if not torch.cuda.is_available():
        print("torch finds no GPU that it can use", file=sys.stderr)
        return 1
    device = torch.device("cuda", 0)
    free, _ = torch.cuda.mem_get_info(device)
    edge = _EDGE
    while edge > 1024 and 10 * edge * edge + _COPY_BYTES > free // 2:
        edge //= 2
    keep_busy(device, edge, min(_COPY_BYTES, free // 8), seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
