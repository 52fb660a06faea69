"""A norm folded into the product behind it."""

from __future__ import annotations

import torch

from firsttoken.kernels import reference
from firsttoken.kernels.linear import DenseLinear, Norm
from firsttoken.model.loading import fold_norm


def test_a_folded_norm_and_its_product_give_what_they_gave_before() -> None:
    x = torch.randn(3, 96, dtype=torch.float64)
    norm = Norm(torch.rand(96, dtype=torch.float64) + 0.5, 1e-6)
    linear = DenseLinear(torch.randn(5000, 96, dtype=torch.float64))
    expected = reference.norm_linear(x, norm, linear)

    left = fold_norm(norm, linear)

    assert left.folded
    assert torch.equal(left.weight, torch.ones(96, dtype=torch.float64))
    torch.testing.assert_close(reference.norm_linear(x, left, linear), expected, rtol=1e-5, atol=1e-5)
