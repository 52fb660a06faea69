"""What the page of a GPU's recording says, and what it does not claim to know."""

from __future__ import annotations

import pytest
from tests.engine.bare_worker import request
from tests.engine.fake_engine import info
from tests.qwen3_4b import CONFIG

from firsttoken.engine.sequence import Sequence
from firsttoken.engine.step_plan import PlanRow, StepPlan
from firsttoken.engine.step_profile.keep import remembered_ceilings
from firsttoken.engine.step_profile.page import Page
from firsttoken.engine.step_profile.work import Work, work_of
from firsttoken.errors import ConfigError
from firsttoken.machine.gpu import Gpu
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.model.config import parse_config
from firsttoken.model.cost import attention_flops, decode_flops, layer_flops
from firsttoken.traces.summary import summarise
from firsttoken.traces.trace import Event, Trace

H200 = Ceilings("NVIDIA H200", read=4e12, product=8e14)


def page(ceilings: Ceilings | None, *, on_gpu: bool = True) -> str:
    """Steps of 2 ms, of which 1.9 are busy, that read 6 GB."""
    events = [Event(2000.0 * i + 500, 2000.0 * i + 2400, "matvec_kernel", 2000.0 * i + 10) for i in range(3)]
    steps = [(2000.0 * i, 2000.0 * i + 1900) for i in range(3)]
    summary = summarise(Trace(steps, events if on_gpu else [], on_gpu=on_gpu))
    assert summary is not None
    work = Work(steps=2, rows=2, tokens=2, context=2000, num_bytes=12 * 10**9, flops=16 * 10**9)
    return Page(
        info=info(device="cuda:0", device_name="NVIDIA H200"),
        when="now",
        trace_name="t.gz",
        summary=summary,
        work=work,
        plain_ms=1.95,
        ceilings=ceilings,
    ).text()


def test_times_rates_and_gaps_stand_beside_their_ceilings() -> None:
    text = page(H200)
    assert "A step ran 1 sequences and 1 new tokens over contexts of 1,000 tokens each." in text
    assert "| wall, mean | 2.000 ms |" in text
    assert "1.950 ms" in text
    assert "| GPU busy | 1900.0 µs | 95.00% |" in text
    assert "| idle between steps | 100.0 µs | 5.00% |" in text
    assert "over 20 µs (1.00 a step) | 100.0 µs | 5.00% |" in text
    assert "| reads | 6 GB | 3 TB/s | 4 TB/s | 75.0% |" in text
    assert "| 4 TFLOP/s | 800 TFLOP/s | 0.5% |" in text
    assert "| products | 1 | 1900.0 | 1900.0 | 95.0% |" in text
    assert "| products → products | between steps | 1 | 100.00 |" in text


def test_a_ceiling_that_nobody_measured_is_no_figure() -> None:
    assert page(None).count("not measured here; `firsttoken bench run` does") == 2


def test_a_gpu_without_recorded_kernels_is_said_to_be_one() -> None:
    assert "No kernel was recorded" in page(H200, on_gpu=False)


def test_ceilings_are_those_remembered_of_the_engines_card() -> None:
    cards = [Gpu(0, "NVIDIA A10", 1, 1, "580"), Gpu(1, "NVIDIA H200", 1, 1, "580")]
    engine = info(device="cuda:0", device_name="NVIDIA H200")
    assert remembered_ceilings(engine, lambda: cards, {cards[1]: H200}.get) is H200
    assert remembered_ceilings(engine, lambda: cards[:1], {cards[0]: H200}.get) is None

    def no_home(gpu: Gpu) -> Ceilings | None:
        raise ConfigError("There is no home folder.")

    assert remembered_ceilings(engine, lambda: cards, no_home) is None


def sequence(known: int) -> Sequence:
    return Sequence(
        request=request("a", *[1] * known),
        index=0,
        seed=0,
        token_ids=[1] * known,
        num_prompt_tokens=known,
        max_total_tokens=known + 10,
        order=0,
        stop_ids=frozenset(),
    )


def test_work_is_what_model_and_contexts_ask_for() -> None:
    config = parse_config(CONFIG)
    engine = info(weight_bytes=8 * 10**9, kv_bytes_per_token=1000)
    decoding = PlanRow(sequence(100), 0, start=99, num_tokens=1, samples=True, fresh=False)
    chunk = PlanRow(sequence(500), 0, start=100, num_tokens=50, samples=False, fresh=False)
    one = work_of([StepPlan(0, (decoding,))], config, engine)
    assert one == Work(1, 1, 1, 100, 8 * 10**9 + 100_000, decode_flops(config, 100))
    both = work_of([StepPlan(0, (decoding,)), StepPlan(1, (decoding, chunk))], config, engine)
    assert (both.steps, both.rows, both.tokens, both.context) == (2, 3, 52, 350)
    assert both.num_bytes == 16 * 10**9 + 350_000
    assert both.flops == pytest.approx(
        2 * decode_flops(config, 100) + 50 * layer_flops(config) + attention_flops(config, 50, 150)
    )
