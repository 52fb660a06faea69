"""Choosing tokens on a GPU against the torch form: interpreted on a CPU, compiled where there is a GPU."""

from __future__ import annotations

import os

import pytest
import torch

from firsttoken.kernels import sampling

INTERPRETED = not torch.cuda.is_available()
pytest.importorskip("triton")

from firsttoken.kernels.gpu.argmax import argmax_merge_kernel, argmax_slices_kernel  # noqa: E402
from firsttoken.kernels.gpu.draw import CANDIDATES, draw_top  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    torch.manual_seed(seed)
    print(f"seed {seed}")  # shown where a test fails


def test_greedy_takes_the_lowest_of_equals_and_neither_padding_nor_nan() -> None:
    logits = torch.randn(4, 5000, device=DEVICE)
    logits[:, 4500:] = 99.0  # padding
    logits[0, 7] = logits[0, 4001] = 50.0
    logits[1, 11] = float("nan")
    values, ids = (torch.empty(4, 3, dtype=dtype, device=DEVICE) for dtype in (torch.float32, torch.int32))
    out = torch.empty(4, dtype=torch.int64, device=DEVICE)
    last_ids = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    inputs = torch.tensor([[0] * 4, [3, 1, 0, 5], [8, 8, 0, 8]], dtype=torch.int32, device=DEVICE)
    argmax_slices_kernel[(3, 4)](logits, values, ids, 4500, V=5000, BV=2048, PDL=False)
    argmax_merge_kernel[(4,)](values, ids, out, inputs, last_ids, 3, 4, BS=4, PDL=False)
    expected = logits[:, :4500].nan_to_num(nan=-1e9).argmax(dim=1).tolist()
    assert out.tolist() == expected
    assert expected[0] == 7
    assert last_ids.tolist() == [0, expected[1], 0, expected[0], 0, expected[3]], "row 2 is padding"


# Interpreted, a sort takes a second: there the cases are few and the lists short
DRAWS = [(5, 8, 32, 70)] if INTERPRETED else [(k, CANDIDATES, 4096, 151_000) for k in (1, 20, 64)]


@pytest.mark.parametrize(("top_k", "count", "width", "ids"), DRAWS)
def test_drawing_among_the_likeliest_matches_the_sorted_form(top_k: int, count: int, width: int, ids: int) -> None:
    rows = 6
    logits = torch.randn(rows, ids, device=DEVICE) * 3
    logits[0, 40] = logits[0, ids - 1] = logits[0].max() + 1  # equals, in two slices
    logits[1, 3:] = float("-inf")  # fewer than top-k are possible
    logits[2, 7] = float("nan")
    logits[3] = -torch.rand(ids, device=DEVICE) * 1e30
    temperature = torch.tensor([1.0, 0.7, 2.0, 1.0, 0.01, 1.3], device=DEVICE)
    top_p = torch.tensor([1.0, 0.8, 0.5, 1.0, 1.0, 0.9], device=DEVICE)
    min_p = torch.tensor([0.0, 0.0, 0.05, 0.0, 0.0, 0.2], device=DEVICE)
    uniform = torch.rand(rows, dtype=torch.float64, device=DEVICE)
    most = torch.full((rows,), top_k, dtype=torch.int64, device=DEVICE)
    parameters = torch.stack([p.double() for p in (temperature, most, top_p, min_p, uniform)])
    expected = sampling.draw(sampling.sanitize(logits.clone()), count, temperature, most, top_p, min_p, uniform)
    assert draw_top(logits, parameters, count=count, width=width).tolist() == expected.tolist()
