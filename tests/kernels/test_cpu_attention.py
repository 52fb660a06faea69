"""The compiled CPU attention against the reference, over shapes, batches and thread counts."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.cpu_cases import AttentionCase, attention_case

from firsttoken.kernels import reference
from firsttoken.kernels.cpu_ops import CpuKernels
from firsttoken.kernels.linear import Norm

MIXED = [(1, 1), (1, 300), (1, 600), (17, 17), (40, 290), (3, 515)]


def compare(kernels: CpuKernels, case: AttentionCase, q_norm: Norm | None = None, k_norm: Norm | None = None) -> None:
    theirs = case.copy()
    expected = reference.attention(case.qkv, q_norm, k_norm, case.rope, theirs, case.plan)
    got = kernels.attention(case.qkv, q_norm, k_norm, case.rope, case.kv, case.plan)
    assert torch.allclose(got, expected, atol=2e-5)
    assert torch.allclose(case.kv.k, theirs.k, atol=1e-5)
    assert torch.equal(case.kv.v, theirs.v)


@pytest.mark.parametrize(("heads", "kv_heads", "threads"), [(9, 3, 1), (8, 8, 2), (40, 1, 3)])
@pytest.mark.parametrize(("head_dim", "block_size"), [(64, 1), (80, 16), (128, 5)])
def test_attention_matches_the_reference(
    kernels: CpuKernels, heads: int, kv_heads: int, threads: int, head_dim: int, block_size: int
) -> None:
    kernels.set_threads(threads)
    compare(kernels, attention_case(MIXED, heads=heads, kv_heads=kv_heads, head_dim=head_dim, block_size=block_size))


def test_queries_and_keys_are_normed_each_with_its_own_weight(kernels: CpuKernels) -> None:
    case = attention_case(MIXED, heads=4, kv_heads=2, head_dim=64, block_size=16)
    compare(kernels, case, Norm(torch.rand(64), 1e-6), Norm(torch.rand(64), 1e-5))


def test_padding_writes_no_keys_and_gives_zeros(kernels: CpuKernels) -> None:
    case = attention_case([(1, 20), (5, 5)], heads=4, kv_heads=2, head_dim=64, block_size=16, padding=3)
    compare(kernels, case)
    got = kernels.attention(case.qkv, None, None, case.rope, case.kv, case.plan)
    assert torch.equal(got[6:], torch.zeros(3, 256))


def test_unwritten_cache_is_never_read(kernels: CpuKernels) -> None:
    case = attention_case([(37, 37), (1, 1)], heads=4, kv_heads=2, head_dim=64, block_size=16)
    case.kv.k.fill_(float("nan"))
    case.kv.v.fill_(float("nan"))
    assert kernels.attention(case.qkv, None, None, case.rope, case.kv, case.plan).isfinite().all()


@pytest.mark.parametrize("length", [40, 700])
def test_a_token_is_the_same_whole_in_chunks_and_one_by_one(kernels: CpuKernels, length: int) -> None:
    whole = attention_case([(length, length)], heads=6, kv_heads=2, head_dim=64, block_size=16)
    expected = kernels.attention(whole.qkv, None, None, whole.rope, whole.kv, whole.plan)
    for step in (length - 1, 7 if length < 100 else 150, 1 if length < 100 else 699):
        kv = whole.copy()
        for start in range(0, length, step):
            end = min(start + step, length)
            piece = attention_case([(end - start, end)], heads=6, kv_heads=2, head_dim=64, block_size=16)
            piece.plan.rope_rows = whole.plan.rope_rows[start:end]
            piece.plan.slots = whole.plan.slots[start:end]
            piece.plan.block_tables = whole.plan.block_tables
            got = kernels.attention(whole.qkv[start:end], None, None, whole.rope, kv, piece.plan)
            assert torch.equal(got, expected[start:end])


def test_a_row_is_the_same_beside_others_and_on_any_threads(kernels: CpuKernels) -> None:
    case = attention_case(MIXED, heads=9, kv_heads=3, head_dim=64, block_size=16)
    kernels.set_threads(1)
    expected = kernels.attention(case.qkv, None, None, case.rope, case.copy(), case.plan)
    kernels.set_threads(3)
    assert torch.equal(kernels.attention(case.qkv, None, None, case.rope, case.copy(), case.plan), expected)
    for row, (start, end, context) in enumerate(case.plan.host_rows):
        alone = attention_case([(end - start, context)], heads=9, kv_heads=3, head_dim=64, block_size=16)
        alone.plan.rope_rows = case.plan.rope_rows[start:end]
        alone.plan.slots = case.plan.slots[start:end]
        alone.plan.block_tables = case.plan.block_tables[row : row + 1]
        got = kernels.attention(case.qkv[start:end], None, None, case.rope, case.copy(), alone.plan)
        assert torch.equal(got, expected[start:end])


def test_other_dtypes_and_odd_heads_are_left_to_the_reference(kernels: CpuKernels) -> None:
    case = attention_case([(1, 3)], heads=2, kv_heads=1, head_dim=64, block_size=16)
    odd = attention_case([(1, 3)], heads=2, kv_heads=1, head_dim=72, block_size=16)
    assert kernels.can_attend(case.qkv, case.kv)
    assert not kernels.can_attend(case.qkv.to(torch.bfloat16), case.kv)
    assert not kernels.can_attend(odd.qkv, odd.kv)
