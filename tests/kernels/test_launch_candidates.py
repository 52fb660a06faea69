"""Which launches are tried, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.kernels.gpu.candidates import Job, Limits, candidates, library, nearest, why_impossible
from firsttoken.kernels.gpu.launch import DENSE, Product
from firsttoken.kernels.gpu.launch_table import table_for

H200 = Limits(shared_bytes=227 * 1024, dependent_launch=True, fp8=True)
RTX3090 = Limits(shared_bytes=99 * 1024, dependent_launch=False, fp8=False)
QKV = Job(name="qkv", op="norm_linear", n=6144, k=2560, rows=1)
DOWN = Job(name="down", op="linear_add", n=2560, k=9728, rows=16)
GATE_UP = Job(name="gate and up", op="norm_linear_swiglu", n=9728, k=2560, rows=16)
DOT = Product(op="linear_add", n=2560, k=9728, rows=16, form="dot", bn=64, bk=128, stages=3, prefetch=256, splits=4)


def forms(job: Job) -> set[str]:
    return {product.form for product in candidates(job, H200)}


def test_rows_decide_which_forms_are_tried() -> None:
    assert [forms(replace(QKV, rows=rows)) for rows in (1, 2, 4, 5, 64, 65)] == [
        {"matvec"},
        {"matvec", "dot"},
        {"matvec", "dot"},
        {"dot"},
        {"dot"},
        set(),
    ]


@pytest.mark.parametrize("limits", [H200, RTX3090])
@pytest.mark.parametrize("job", [QKV, DOWN, GATE_UP, replace(QKV, rows=2), replace(DOWN, n=1000, k=1001)])
def test_every_candidate_can_run_and_is_named_once(job: Job, limits: Limits) -> None:
    found = candidates(job, limits)
    assert not [product for product in found if why_impossible(product)]
    assert len(set(found)) == len(found)


def test_a_shape_that_no_tile_divides_is_left_to_the_library() -> None:
    assert candidates(replace(DOWN, n=1000, k=1001), H200) == []


def test_a_card_with_less_shared_memory_is_offered_smaller_tiles_and_no_early_reads() -> None:
    here, there = candidates(GATE_UP, H200), candidates(GATE_UP, RTX3090)
    assert max(product.bn * product.bk * product.stages for product in there) < max(
        product.bn * product.bk * product.stages for product in here
    )
    assert {product.prefetch for product in here} == {0, 256}
    assert {product.prefetch for product in there} == {0}


def test_only_sums_into_the_residual_are_split() -> None:
    found = candidates(DOWN, H200)
    assert {product.splits for product in found} == {1, 2, 4, 8}
    assert {product.bk for product in found if product.splits == 8} == {64}, "an eighth of 9728 is 19 tiles of 64"
    assert {product.splits for product in candidates(GATE_UP, H200)} == {1}


def test_every_launch_in_the_h200s_table_is_among_those_tried() -> None:
    for product in table_for("NVIDIA H200").products:
        rows = min(product.rows, 16) if product.weight == DENSE else product.rows
        job = Job(name="", op=product.op, n=product.n, k=product.k, rows=rows, weight=product.weight)
        wanted = replace(product, rows=rows)
        assert wanted in [*candidates(job, H200), library(job)]


FP8 = replace(QKV, weight="fp8-row")
INT4 = replace(DOWN, rows=1, weight="int4-128-points")


@pytest.mark.parametrize("limits", [H200, RTX3090])
@pytest.mark.parametrize("job", [FP8, INT4, replace(FP8, rows=16), replace(INT4, rows=64)])
def test_every_candidate_of_a_quantised_weight_can_run_and_is_named_once(job: Job, limits: Limits) -> None:
    found = candidates(job, limits)
    several = {"dot", "pairs"} if limits.fp8 else {"dot"}
    assert {product.form for product in found} == ({"matvec", "fixed"} if job.rows == 1 else several)
    assert not [product for product in found if why_impossible(product)]
    assert len(set(found)) == len(found)
    assert {product.weight for product in found} == {job.weight}


def test_tiles_of_a_quantised_weight_divide_its_groups_or_hold_several() -> None:
    found = candidates(replace(INT4, rows=8), H200)
    assert {product.bk for product in found if product.form == "dot"} == {32, 64, 128, 256}
    assert {product.bk for product in found if product.form == "pairs"} == {64, 128}
    in_fp8 = candidates(replace(FP8, rows=8, weight="fp8-128x128"), H200)
    assert {product.bk for product in in_fp8} == {32, 64, 128}
    assert candidates(replace(INT4, rows=65), H200) == []


@pytest.mark.parametrize("kind", ["int8-128", "int4-128-offsets", "int4-row", "int4-32"])
def test_activations_come_in_pairs_only_to_weights_that_are_e4m3_numbers_as_they_lie(kind: str) -> None:
    found = candidates(replace(INT4, rows=8, weight=kind), H200)
    assert {product.form for product in found} == {"dot"}
    assert why_impossible(replace(found[0], form="pairs", bn=64, warps=4, bk=32))


def test_bytes_are_those_of_the_weights_form() -> None:
    assert [replace(QKV, weight=kind).weight_bytes for kind in (DENSE, "int8-128", "int4-32")] == [
        2 * 6144 * 2560,
        6144 * 2560,
        6144 * 2560 // 2,
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"bn": 16},
        {"bk": 256},
        {"stages": 9},
        {"splits": 3},
        {"prefetch": 64},
        {"prefetch": 2048},
        {"form": "matvec"},
        {"form": "matvec", "rows": 1, "ahead": 2},
    ],
    ids=str,
)
def test_a_launch_of_a_quantised_weight_that_cannot_run_says_why(wrong: dict[str, Any]) -> None:
    shape: dict[str, Any] = {"op": "linear_add", "n": 2560, "k": 9728, "rows": 8, "form": "dot", "bn": 32, "bk": 128}
    good = Product(**shape, warps=2, stages=4, splits=4, weight="int4-128-points")
    assert why_impossible(good) is None
    assert why_impossible(replace(good, **wrong))


def test_the_search_begins_where_the_form_stands() -> None:
    found = nearest(candidates(DOWN, H200), {"dot": DOT}, 5)
    assert found[0] == DOT
    for product in found[1:]:
        changed = [
            name
            for name in ("bn", "bk", "warps", "stages", "prefetch", "splits")
            if getattr(product, name) != getattr(DOT, name)
        ]
        assert len(changed) == 1


def test_a_form_that_has_not_run_yet_is_not_left_for_last() -> None:
    job = replace(QKV, rows=2)
    best = {"matvec": Product(op="norm_linear", n=6144, k=2560, rows=2, form="matvec", bn=8, bk=256, warps=4)}
    assert {product.form for product in nearest(candidates(job, H200), best, 4)} == {"matvec", "dot"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"bn": 3},
        {"bk": 0},
        {"warps": 64},
        {"rows": 65},
        {"rows": 0},
        {"stages": 0},
        {"bn": 8},
        {"splits": 3},
        {"splits": 0},
        {"op": "norm_linear"},
        {"prefetch": 32},
        {"prefetch": 100},
        {"prefetch": 4096},
        {"form": "matvec", "rows": 5},
        {"form": "matvec", "rows": 1, "ahead": 4},
    ],
    ids=str,
)
def test_what_no_kernel_could_run_is_told_apart(wrong: dict[str, Any]) -> None:
    assert why_impossible(DOT) is None
    assert why_impossible(replace(DOT, **wrong)) is not None
