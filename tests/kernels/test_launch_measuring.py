"""Compiling processes, and the whole search over real kernels: interpreted on a CPU, compiled where there is a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from tests.kernels.stub_build import DEADLY, REFUSED
from tests.kernels.stub_build import build as stub_build

from firsttoken.errors import FirstTokenError
from firsttoken.kernels.gpu.candidates import Job, Limits, candidates, library, nearest
from firsttoken.kernels.gpu.launch import Product
from firsttoken.kernels.gpu.search import ERROR_BOUND, search
from firsttoken.kernels.linear import DenseLinear
from firsttoken.kernels.quant_linear import QuantLinear

pytest.importorskip("triton")

from firsttoken.kernels.gpu.card import GpuCard
from firsttoken.kernels.gpu.card_facts import CardFacts, imagined
from firsttoken.kernels.gpu.compile_pool import Build, CompilePool
from firsttoken.kernels.gpu.measured_product import operands
from firsttoken.kernels.gpu.ops import picked

DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32
HOPPER = CardFacts(name="NVIDIA H200", capability=(9, 0), processors=132, shared_bytes=227 * 1024)
JOB = Job(name="o", op="linear_add", n=16, k=256, rows=2, bias=True)


def _launch(bn: int) -> tuple[Job, Product]:
    return JOB, Product(op="linear_add", n=16, k=256, rows=2, form="matvec", bn=bn, bk=256, ahead=1)


def test_processes_compile_until_the_time_is_over_and_a_killed_one_is_told() -> None:
    told: list[str] = []
    times = itertools.chain([0.0, 0.0, 0.0], itertools.repeat(9.0))
    with CompilePool(stub_build, 1, clock=lambda: next(times)) as pool:
        good = pool.compile([_launch(bn) for bn in (1, REFUSED, 2, 4)], until=5.0, tell=told.append)
        assert [product.bn for _, product in good] == [1, 2]
        assert told[-1] == "compiling, 3 of 4"
        with pytest.raises(FirstTokenError, match="--processes"):
            pool.compile([_launch(DEADLY)], until=float("inf"), tell=told.append)


@pytest.mark.skipif(torch.cuda.is_available(), reason="would compile hundreds of kernels; interpreted, it makes calls")
@pytest.mark.parametrize("op", ["norm_linear", "norm_linear_swiglu", "linear_add"])
def test_every_candidate_has_a_call_to_compile_without_a_tensor_on_the_card(op: str) -> None:
    job = Job(name=op, op=op, n=192, k=2048, rows=4, bias=True)  # type: ignore[arg-type]
    launches = [*candidates(job, Limits(227 * 1024, True, True)), library(job)]
    assert {product.form for product in launches} == {"matvec", "dot", "library"}
    build = Build(torch.bfloat16, HOPPER)
    assert all(build((job, product)) for product in launches)


@pytest.mark.skipif(torch.cuda.is_available(), reason="would compile dozens of kernels; interpreted, it makes calls")
@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("weight", ["fp8-row", "fp8-128x128", "int8-128", "int4-128-points"])
def test_so_have_those_of_quantised_weights(weight: str, rows: int) -> None:
    build = Build(torch.bfloat16, HOPPER)
    for op in ("norm_linear", "norm_linear_swiglu", "linear_add"):
        job = Job(name=op, op=op, n=192, k=2048, rows=rows, weight=weight)
        launches = nearest(candidates(job, Limits(227 * 1024, True, True)), {}, 20)
        several = {"dot"} if weight.startswith("int8") else {"dot", "pairs"}
        assert {product.form for product in launches} == ({"matvec", "fixed"} if rows == 1 else several)
        assert all(build((job, product)) for product in launches)


class _NoPool:
    """Kernels are compiled at their first call."""

    def compile(
        self, launches: Sequence[tuple[Job, Product]], until: float, tell: Callable[[str], None]
    ) -> list[tuple[Job, Product]]:
        return list(launches)


def _timer(run: Callable[[int], object], calls: int) -> Callable[[], float]:
    """Runs once, and lets each launch look a little faster than the one before."""
    out = run(calls)
    assert isinstance(out, torch.Tensor)
    assert out.isfinite().all()
    return lambda: 100.0 - next(_ticks)


_ticks = itertools.count()


def test_a_search_over_real_kernels_ends_with_right_numbers() -> None:
    card = GpuCard(DEVICE, DTYPE, _NoPool(), Limits(99 * 1024, DEVICE.type == "cuda", True), 0, _timer)
    clock = itertools.chain([0.0, 0.0], itertools.repeat(9.0))  # one round after the first
    [found] = search(
        [JOB], lambda job: library(job), card, 5.0, width=1, tell=lambda text: None, clock=lambda: next(clock)
    )
    assert found.tried == 4
    assert card.error(JOB, found.best) < ERROR_BOUND


@pytest.mark.parametrize("op", ["norm_linear", "norm_linear_swiglu", "linear_add"])
@pytest.mark.parametrize("form", ["matvec", "library"])
def test_a_products_error_is_that_of_its_own_op(op: str, form: str) -> None:
    job = Job(name=op, op=op, n=24, k=256, rows=1, bias=op != "linear_add")  # type: ignore[arg-type]
    made = operands(job, DEVICE, DTYPE, 2)
    launch = Product(op=job.op, n=24, k=256, rows=1, form=form, bn=8, bk=256, ahead=1)  # type: ignore[arg-type]
    residual = made.residual.clone()
    assert made.error(launch) < (1e-5 if torch.float32 == DTYPE else ERROR_BOUND)
    assert torch.equal(made.residual, residual), "what is measured next finds the same"
    other = made.with_weights(made.weights[1:])
    assert float((other.run(launch, 0) - made.run(launch, 1)).abs().max()) < 1e-2, "calls go through the weights"
    first = made.weights[0]
    assert isinstance(first, DenseLinear)
    weight = first.weight.clone()
    weight[3] = float("nan")
    broken = made.with_weights([DenseLinear(weight, first.bias)])
    assert broken.error(launch) == float("inf")


@pytest.mark.parametrize("op", ["norm_linear", "norm_linear_swiglu", "linear_add"])
@pytest.mark.parametrize("weight", ["fp8-row", "fp8-128x128", "int8-128", "int4-128-points", "int4-64-offsets"])
def test_products_with_quantised_weights_are_measured_against_what_those_stand_for(op: str, weight: str) -> None:
    job = Job(name=op, op=op, n=24, k=256, rows=1, weight=weight, bias=op == "norm_linear")  # type: ignore[arg-type]
    made = operands(job, DEVICE, DTYPE, 1)
    first = made.weights[0]
    assert isinstance(first, QuantLinear)
    assert first.kind == weight
    launch = Product(op=job.op, n=24, k=256, rows=1, form="matvec", bn=8, bk=128, ahead=0, weight=weight)
    assert made.error(launch) < (1e-4 if torch.float32 == DTYPE else ERROR_BOUND)
    assert 0.02 < float(made.run(launch).std()) < 10, "numbers as a model has them"


@pytest.mark.parametrize(
    ("capability", "dtype", "form"),
    [((9, 0), torch.bfloat16, "pairs"), ((9, 0), torch.float16, "dot"), ((8, 6), torch.bfloat16, "dot")],
    ids=str,
)
def test_pairs_are_for_bfloat16_on_cards_that_multiply_fp8_whatever_a_table_says(
    capability: tuple[int, int], dtype: torch.dtype, form: str
) -> None:
    job = Job(name="qkv", op="norm_linear", n=6144, k=2560, rows=16, weight="fp8-row")
    with imagined(replace(HOPPER, capability=capability)):
        made = operands(job, torch.device("meta"), dtype)
        assert picked(made.x, job.op, job.n, made.weights[0]).form == form
