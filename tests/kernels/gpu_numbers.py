"""Random operands for the GPU kernels' tests, and how far their results are from the reference's in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from firsttoken.kernels.linear import Norm

INTERPRETED = not torch.cuda.is_available()
DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float32 if INTERPRETED else torch.bfloat16
INTERPRETER = "3.7" if INTERPRETED else None  # the oldest Triton that takes NumPy's arrays of one number for numbers
BOUND = 1e-5 if INTERPRETED else 6e-3  # of the relative error


def random(*shape: int, dtype: torch.dtype = DTYPE) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device=DEVICE)


def random_norm(width: int) -> Norm:
    return Norm((torch.rand(width, device=DEVICE) + 0.5).to(DTYPE), 1e-6)


def wide_norm(norm: Norm) -> Norm:
    return Norm(norm.weight.double(), norm.eps, norm.folded)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


def assert_near(actual: Tensor, expected: Tensor, plain: Tensor, bound: float = BOUND) -> None:
    """Within the bound of the float64 result; where the plain form in the same precision is not, not much further.

    A few outputs whose sums nearly cancel take any form in 16 bits beyond a bound now and then.
    """
    unavoidable = relative_error(plain, expected)
    assert relative_error(actual, expected) < (bound if unavoidable <= bound else 1.25 * unavoidable)
