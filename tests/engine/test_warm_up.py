"""The steps before the first request: how many of them run when time is short."""

from __future__ import annotations

from firsttoken.engine.step_plan import Masks, StepPlan, StepResult
from firsttoken.engine.warm_up import WarmUp


class IdleRunner:
    """Computes nothing and takes no time; counts the tokens of every plan."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def launch(self, plan: StepPlan) -> None:
        self._plan = plan
        self.tokens.append(sum(row.num_tokens for row in plan.rows))

    def mask(self, masks: Masks) -> None:
        pass

    def collect(self) -> StepResult:
        nothing = [None] * len(self._plan.rows)
        return StepResult(self._plan.step_id, list(nothing), list(nothing), list(nothing))

    def improve(self) -> bool:
        return False


def warm_up(runner: IdleRunner, max_tokens: int = 8192) -> WarmUp:
    return WarmUp(
        runner,
        num_blocks=1024,
        block_size=16,
        max_num_seqs=8,
        max_tokens=max_tokens,
        max_len=16384,
        token_id_limit=64,
    )


def test_a_machine_that_is_late_from_the_start_times_one_prompt_and_no_longer_ones() -> None:
    runner = IdleRunner()
    points = warm_up(runner).run(budget=0.0)
    assert [load.prefill_tokens for load, _ in points if load.prefill_tokens] == [16]
    assert max(runner.tokens) == 16


def test_with_time_left_prompts_up_to_the_largest_step_are_timed() -> None:
    points = warm_up(IdleRunner(), max_tokens=1024).run(budget=60.0)
    assert [load.prefill_tokens for load, _ in points if load.prefill_tokens] == [16, 64, 256, 1024]


def test_steps_smaller_than_the_shortest_prompt_are_enough() -> None:
    points = warm_up(IdleRunner(), max_tokens=8).run(budget=60.0)
    assert [load.prefill_tokens for load, _ in points if load.prefill_tokens] == [8]
