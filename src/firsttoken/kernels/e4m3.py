"""FP8 numbers with four bits of exponent and three of mantissa (OCP 8-bit floating point, E4M3), kept as bytes."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 448.0


def encode(x: Tensor, scale: Tensor) -> Tensor:
    """x / scale, rounded to the nearest E4M3 number and held within its range: uint8 of x's shape."""
    scaled = (x.to(torch.float32) / scale).clamp(-LARGEST, LARGEST)
    return scaled.to(torch.float8_e4m3fn).view(torch.uint8)


def decode(codes: Tensor, scale: Tensor) -> Tensor:
    """What the codes stand for: float32 of their shape."""
    return codes.view(torch.float8_e4m3fn).to(torch.float32) * scale
