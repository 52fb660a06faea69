"""The choice among finalists by whole steps whose times are known."""

from __future__ import annotations

from dataclasses import replace

from tests.kernels.fake_steps import FakeSteps

from firsttoken.kernels.gpu.candidates import Job
from firsttoken.kernels.gpu.launch import Product, default_product
from firsttoken.kernels.gpu.search import Found
from firsttoken.kernels.gpu.step_search import Settled, settle

ENOUGH = 1000.0


def found(k: int, *, rows: int = 1, failed: bool = False) -> Found:
    """A launch in use of 10 µs, a faster one of 9 and one of 9.5."""
    job = Job(name=f"of {k}", op="linear_add", n=2560, k=k, rows=rows)
    before = default_product(job.op, job.n, job.k, rows)
    fast, near = replace(before, bn=4), replace(before, bn=8)
    finalists = {fast: 9.0, near: 9.5} | ({} if failed else {before: 10.0})
    return Found(job, fast, 9.0, before, float("inf") if failed else 10.0, 3, 3, finalists)


def alone(products: frozenset[Product]) -> float:
    """A step that takes what its products do alone, and 100 µs."""
    return 100.0 + sum({4: 9.0, 8: 9.5}.get(p.bn, 10.0) for p in products)


def run(founds: list[Found], steps: FakeSteps, budget: float = ENOUGH) -> list[Settled]:
    return list(settle(founds, steps, budget, lambda text: None, steps.clock))


def chosen(settled: Settled) -> list[int]:
    return [each.best.bn for each in settled.found]


def test_where_steps_agree_the_fastest_alone_are_kept() -> None:
    steps = FakeSteps(lambda rows, products: alone(products))
    [settled] = run([found(4096), found(9728)], steps)
    assert chosen(settled) == [4, 4]
    assert (settled.before_us, settled.us, settled.read_bytes) == (120.0, 118.0, 8_000_000_001)


def test_a_launch_that_slows_its_step_gives_way_to_the_next_and_tells_its_own_time() -> None:
    def us(rows: int, products: frozenset[Product]) -> float:
        return alone(products) + sum(5.0 for p in products if p.bn == 4 and p.k == 9728)

    [settled] = run([found(4096), found(9728)], FakeSteps(us))
    assert chosen(settled) == [4, 8]
    assert [each.us for each in settled.found] == [9.0, 9.5]
    assert settled.us == 118.5


def test_launches_that_do_not_go_together_are_not_put_together() -> None:
    def us(rows: int, products: frozenset[Product]) -> float:
        return alone(products) + (8.0 if all(p.bn == 4 for p in products) else 0.0)

    [settled] = run([found(4096), found(9728)], FakeSteps(us))
    assert sorted(chosen(settled)) == [4, 8]
    assert settled.us == 118.5


def test_what_makes_no_step_faster_replaces_nothing() -> None:
    steps = FakeSteps(lambda rows, products: 10_000.0 + alone(products))  # 2 of 10,120 µs at the most
    founds = [found(4096), found(9728)]
    [settled] = run(founds, steps)
    assert [each.best for each in settled.found] == [each.before for each in founds]
    assert settled.us == settled.before_us == 10_120.0
    assert settled.is_the_same


def test_out_of_time_it_has_at_least_compared_what_was_in_use_with_the_fastest() -> None:
    steps = FakeSteps(lambda rows, products: alone(products))
    founds = [found(k, rows=rows) for k in (4096, 9728) for rows in (1, 16)]
    few, many = run(founds, steps, budget=0.0)
    assert (few.rows, many.rows) == (1, 16)
    assert chosen(few) == chosen(many) == [4, 4]
    assert len(steps.tried) == 4


def test_row_counts_share_the_time() -> None:
    steps = FakeSteps(lambda rows, products: alone(products))
    run([found(k, rows=rows) for k in (4096, 9728) for rows in (1, 16)], steps, budget=10.0)
    times = [sum(p.rows == rows for products in steps.tried for p in products) for rows in (1, 16)]
    assert min(times) >= 8, "each beyond the first comparison"
    assert steps.now < 16.0


def test_a_launch_that_the_card_refuses_in_a_step_is_passed_over() -> None:
    founds = [found(4096), found(9728)]
    steps = FakeSteps(lambda rows, products: alone(products))
    steps.refused = {founds[1].best}
    [settled] = run(founds, steps)
    assert chosen(settled) == [4, 8]


def test_where_a_step_cannot_run_at_all_there_is_no_answer() -> None:
    founds = [found(4096), found(9728)]
    steps = FakeSteps(lambda rows, products: alone(products))
    steps.refused = {founds[0].before}
    assert run(founds, steps) == []


def test_a_launch_in_use_that_failed_alone_is_in_no_step() -> None:
    founds = [found(4096, failed=True), found(9728)]
    steps = FakeSteps(lambda rows, products: alone(products))
    [settled] = run(founds, steps)
    assert founds[0].before not in frozenset().union(*steps.tried)
    assert settled.before_us == 119.0
