"""Whole steps by chosen launches: what they would launch on a card that is not here, and one that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.builders import tiny_config

from firsttoken.kernels.gpu.candidates import Job, candidates, library
from firsttoken.kernels.gpu.launch import Product, Table, default_product
from firsttoken.kernels.gpu.launch_table import pick, table_for
from firsttoken.kernels.quant_forms import QuantForm
from firsttoken.model.config import parse_config
from firsttoken.model.products import products_of

pytest.importorskip("triton")

from firsttoken.engine.step_shape import StepShape
from firsttoken.engine.whole_steps import CONTEXT, WholeSteps, made_up_rows, made_up_steps
from firsttoken.kernels.gpu.card import Timer, graph_timer, limits_of
from firsttoken.kernels.gpu.card_facts import CardFacts, imagined, read_card

HOPPER = CardFacts(name="NVIDIA H200", capability=(9, 0), processors=132, shared_bytes=227 * 1024)
CONFIG = parse_config(tiny_config(hidden_size=1024, intermediate_size=1536, num_hidden_layers=2))


def launch(job: Job, **shape: int) -> Product:
    return replace(default_product(job.op, job.n, job.k, job.rows, job.weight), **shape)  # type: ignore[arg-type]


def whole_steps(device: torch.device, timer: Timer, card: str, form: QuantForm | None = None) -> WholeSteps:
    table = Table(card=card, measured="", products=())
    return WholeSteps(CONFIG, form, table, most_rows=4, device=device, dtype=torch.bfloat16, timer=timer)


def once(run: Callable[[int], object], calls: int) -> Callable[[], float]:
    run(0)
    return lambda: float(calls)


def test_a_step_runs_by_the_launches_it_was_given_and_the_table_is_as_before_then() -> None:
    jobs = products_of(CONFIG, [2], None)
    picked: list[list[Product]] = []

    def note(run: Callable[[int], object], calls: int) -> Callable[[], float]:
        picked.append([pick(HOPPER.name, job.op, job.n, job.k, job.rows, job.weight) for job in jobs])
        return once(run, calls)

    before = table_for(HOPPER.name)
    with imagined(HOPPER):
        steps = whole_steps(torch.device("meta"), note, HOPPER.name)
        usual = [launch(job) for job in jobs]
        other = [launch(job, bn=8) if job.name == "down" else launch(job) for job in jobs]
        assert steps.reader(2, usual) is not None
        assert steps.reader(2, other) is not None
    assert picked == [usual, other]
    assert table_for(HOPPER.name) == before


def test_what_a_step_reads_is_its_weights_and_every_rows_cache() -> None:
    with imagined(HOPPER):
        dense = whole_steps(torch.device("meta"), once, HOPPER.name)
        rounded = whole_steps(torch.device("meta"), once, HOPPER.name, "int8")
    of_a_row = CONTEXT * 2 * 2 * CONFIG.num_layers * CONFIG.num_kv_heads * CONFIG.head_dim
    assert dense.read_bytes(3) - dense.read_bytes(2) == of_a_row
    assert rounded.read_bytes(3) - rounded.read_bytes(2) == of_a_row
    assert rounded.read_bytes(1) < dense.read_bytes(1)


on_a_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.gpu
@on_a_card
@pytest.mark.parametrize("form", [None, "fp8", "int8", "int4"])
def test_steps_on_a_card_are_timed_by_any_right_launches(form: QuantForm | None) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    steps = whole_steps(device, graph_timer(), read_card(device.index).name, form)
    for rows in (1, 4):
        jobs = products_of(CONFIG, [rows], form)
        of_each = [candidates(job, limits_of(device)) or [library(job)] for job in jobs]
        reads = [steps.reader(rows, [some[len(some) * i // 3] for some in of_each]) for i in (1, 2)]
        for read in reads * 2:
            assert read is not None
            assert 1.0 < read() < 10_000.0  # microseconds of two small layers


@pytest.mark.gpu
@on_a_card
@pytest.mark.parametrize("rows", [1, 2, 4, 8, 12, 16, 17, 64])
@pytest.mark.parametrize("form", [None, "fp8", "int8", "int4"])
@torch.inference_mode()
def test_a_step_whose_kernels_overlap_gives_the_same_numbers_each_time(form: QuantForm | None, rows: int) -> None:
    """As one graph, where each kernel starts while the one before ends, and kernel by kernel."""
    ops = made_up_steps(CONFIG, form, most_rows=rows, context=3000, device=torch.device("cuda"), dtype=torch.bfloat16)
    shape, sent = StepShape(rows, True), made_up_rows(ops, [(1, 64, 65, 640, 3000)[i % 5] for i in range(rows)])
    expected = ops.forward(shape, sent)[1]
    assert expected is not None
    expected = expected.clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = ops.forward(shape, sent)[1]
        assert logits is not None
        ids = ops.greedy(sent, logits)
    assert expected.isfinite().all()
    for _ in range(50):
        logits.fill_(float("nan"))
        for _ in range(4):  # back to back, so that a step begins while the one before ends
            graph.replay()
        assert torch.equal(logits, expected)
        assert torch.equal(ids, expected[:, : ops.vocabulary].argmax(1))
