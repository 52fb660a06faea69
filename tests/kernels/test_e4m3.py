"""E4M3 as the GPU's kernels write and read it, against torch's: every code, and numbers of every size."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

INTERPRETED = not torch.cuda.is_available()
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from firsttoken.kernels import e4m3  # noqa: E402
from firsttoken.kernels.gpu import e4m3 as on_gpu  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
ONE = torch.ones(1)


@triton.jit  # type: ignore[untyped-decorator]  # Triton's own
def _write(x: Any, out: Any, COUNT: tl.constexpr) -> None:
    at = tl.arange(0, COUNT)
    tl.store(out + at, on_gpu.encode(tl.load(x + at)))


@triton.jit  # type: ignore[untyped-decorator]  # Triton's own
def _read(codes: Any, out: Any, FORM: tl.constexpr, COUNT: tl.constexpr) -> None:
    at = tl.arange(0, COUNT)
    tl.store(out + at, on_gpu.read_kv(tl.load(codes + at), FORM).to(tl.float32) * on_gpu.unit(FORM))


def written(x: Tensor) -> Tensor:
    out = torch.empty(x.shape, dtype=torch.uint8, device=DEVICE)
    _write[(1,)](x.to(DEVICE), out, COUNT=len(x))
    return out.cpu()


def test_numbers_of_every_size_are_rounded_as_torch_does() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    torch.manual_seed(seed)
    x = torch.randn(4096) * torch.exp2(torch.rand(4096) * 26 - 16)
    assert torch.equal(written(x), e4m3.encode(x, ONE))


def test_numbers_half_way_between_two_go_to_the_even_one() -> None:
    codes = torch.arange(0x7E, dtype=torch.uint8)
    low, high = e4m3.decode(codes, ONE), e4m3.decode(codes + 1, ONE)
    half = torch.cat([(low + high) / 2, -(low + high) / 2, torch.zeros(4)])
    assert torch.equal(written(half), e4m3.encode(half, ONE))


def test_what_is_too_large_becomes_the_largest() -> None:
    x = torch.tensor([448.0, 464.0, 1e9, -1e9])
    assert e4m3.decode(written(x), ONE).tolist() == [448, 448, 448, -448]
    assert torch.equal(written(x), e4m3.encode(x, ONE))


@pytest.mark.parametrize("form", [on_gpu.BY_BITS, on_gpu.NATIVE, on_gpu.BY_CODE])
def test_every_code_is_read_exactly(form: on_gpu.KvForm) -> None:
    if form == on_gpu.BY_CODE and INTERPRETED:
        pytest.skip("the interpreter leaves out what is written by hand: see test_hand_written_code")
    if form == on_gpu.NATIVE and (INTERPRETED or torch.cuda.get_device_capability() < (8, 9)):
        pytest.skip("needs a card that converts E4M3 itself")
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[(codes & 0x7F) != 0x7F].repeat(2)[:256]  # no NaN: none is ever written
    out = torch.empty(256, device=DEVICE)
    _read[(1,)](codes.to(DEVICE), out, FORM=form, COUNT=256)
    assert torch.equal(out.cpu(), e4m3.decode(codes, ONE))


def test_a_scale_is_taken_out_and_put_back() -> None:
    scale = torch.tensor([0.125, 4.0])
    x = torch.randn(50, 2)
    back = e4m3.decode(e4m3.encode(x, scale), scale)
    assert float((back - x).abs().div(x.abs().clamp(min=0.1)).max()) <= 2**-4
