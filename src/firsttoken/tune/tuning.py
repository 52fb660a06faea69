"""`firsttoken tune` from its plan to its result: probe, choice of values, session, and what is written down."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from firsttoken.bench.compare import Comparison, compare_pairs
from firsttoken.bench.machine_facts import machine_facts
from firsttoken.bench.result_file import load_result
from firsttoken.bench.words import Words, same
from firsttoken.errors import ConfigError, Unavailable
from firsttoken.tune.arms import BASELINE, Arm, Config, Settings, in_order, named, settings_of
from firsttoken.tune.choose import Choice, choose
from firsttoken.tune.config_text import config_text
from firsttoken.tune.journal import Journal, Plan
from firsttoken.tune.lab import Event, Judge, Lab, Run, Said, Stage
from firsttoken.tune.objective import FIGURES
from firsttoken.tune.predict import score
from firsttoken.tune.probe import Probe
from firsttoken.tune.records import DisturbedRun, Gain, Point, Row, Tuned
from firsttoken.tune.session import Outcome, Session
from firsttoken.tune.space import Space
from firsttoken.tune.stats import MARGIN, Estimate
from firsttoken.tune.trial import Trials
from firsttoken.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is tuned, how, and where the session lies."""

    plan: Plan
    space: Space
    always: str
    titles: list[tuple[str, str]]
    folder: Path
    resume: bool


def run_tuning(
    request: Request,
    trials: Trials,
    gate: Callable[[Callable[[], int]], Judge],
    tell: Callable[[Event], None],
) -> Tuned:
    """The whole session. `gate` makes the judge of quality, given the work's longest context once it is known.

    Raises ConfigError and Unavailable where the baseline cannot be measured. What was measured until then is kept.
    """
    plan = request.plan
    baseline: Settings = dict(plan.baseline)
    journal = Journal(request.folder / "journal.jsonl", plan, resume=request.resume)
    try:
        trials.begin()
        tell(Stage("probe", "The baseline's first run"))
        answer = journal.step(
            "probe", {"settings": baseline}, lambda: msgspec.to_builtins(_probe(trials, baseline, plan.seed))
        )
        probe = msgspec.convert(answer, Probe)
        for one in probe.disturbed:  # nothing rests on this run, but there is still time to make it quiet
            tell(Said(f"The machine is not quiet now: {one.text}. Runs that are disturbed are measured again."))
        choice = choose(request.space, plan.knobs, baseline, probe, plan.objective)
        for skipped in choice.skipped:
            tell(Said(f"Not tried: {skipped.arm.label}: {skipped.why.en}"))
        if not choice.candidates:
            raise ConfigError(
                "There is nothing to try: " + "; ".join(f"{s.arm.label}: {s.why.en}" for s in choice.skipped)
            )
        lab = Lab(
            journal,
            trials,
            gate(lambda: probe.longest),
            baseline=baseline,
            lower_is_better=FIGURES[plan.objective].lower_is_better,
            budget=plan.budget,
            seed=plan.seed,
            tell=tell,
        )
        lab.spent = probe.seconds
        session = Session(lab, choice.candidates, seed=plan.seed, slo_share=plan.slo_share if plan.slo else 0.0)
        outcome = session.run()
    finally:
        journal.close()
    return _result(request, lab, choice, outcome)


def _probe(trials: Trials, baseline: Settings, seed: int) -> Probe:
    """A failed one is not written down: it may have been the machine's fault, and --resume tries again."""
    found = trials.probe(baseline, seed)
    if found.failure:
        raise Unavailable(f"The baseline does not run, so nothing can be compared to it: {found.failure}")
    return found


# --- the result ---


def _result(request: Request, lab: Lab, choice: Choice, outcome: Outcome) -> Tuned:
    plan, space = request.plan, request.space
    baseline: Settings = dict(plan.baseline)
    settings = settings_of(baseline, outcome.kept)
    rows = [*_tried(space, choice, outcome), *_skipped(space, choice)]
    predicted = {row.label: math.log1p(row.predicted) for row in rows if row.predicted is not None}
    measured = {row.label: math.log1p(row.measured.gain) for row in rows if row.measured is not None}
    right, made, error = score(predicted, measured, MARGIN)
    return Tuned(
        version=__version__,
        created=time.time(),
        engine=space.name,
        model=plan.model,
        machine=machine_facts("http://127.0.0.1"),
        workload=request.titles,
        objective=plan.objective,
        slo=plan.slo,
        budget=plan.budget,
        spent=lab.spent,
        runs=lab.measured + 1,
        noise=_share(outcome.noise),
        least=_share(outcome.least),
        best_left=_share(outcome.most_left),
        baseline=baseline,
        baseline_command=space.shown(plan.model, baseline, request.always),
        kept=settings,
        command=space.shown(plan.model, settings, request.always),
        config=config_text(space, settings),
        config_name=f"config.{space.config}",
        changed=[arm.label for arm in in_order(outcome.kept)],
        why=outcome.why.en,
        why_zh=outcome.why.zh,
        fresh=_gain(outcome.fresh) if outcome.fresh is not None else None,
        comparison=_comparison(request.folder, lab, outcome),
        rows=rows,
        failed=[(named(config), reason) for config, reason in lab.failed.items()],
        points=_points(lab, outcome.kept),
        predictions_right=right,
        predictions_made=made,
        prediction_error=error,
        disturbed=[
            DisturbedRun(number=one.number, label=named(one.config), what=list(one.what), fate=one.fate)
            for one in lab.repeats.log
        ],
        unlike=lab.unlike_blocks(),
        client_limited=sum(kept.run.client_limited for kept in lab.runs),
    )


def _tried(space: Space, choice: Choice, outcome: Outcome) -> list[Row]:
    rows = []
    for candidate in choice.candidates:
        arm, knob = candidate.arm, space.find(candidate.arm.knob)
        claim = outcome.claims.get(arm)
        quality = outcome.quality.get(frozenset({arm}))
        prediction = choice.predictions[arm]
        refused = _refused(arm, outcome)
        rows.append(
            Row(
                knob=arm.knob,
                value=arm.value,
                label=arm.label,
                what=knob.what,
                what_zh=knob.what_zh,
                verdict=claim.verdict if claim is not None else None,
                numerics=knob.numerics,
                kept=arm in outcome.kept,
                confirmed=arm in outcome.confirmed,
                measured=_gain(claim.found) if claim is not None else None,
                predicted=None if prediction.gain is None else _share(prediction.gain),
                prediction=prediction.text.en,
                prediction_zh=prediction.text.zh,
                quality=quality.text if quality is not None else "",
                quality_zh=quality.text_zh if quality is not None else "",
                refused=refused.en,
                refused_zh=refused.zh,
            )
        )
    return rows


def _refused(arm: Arm, outcome: Outcome) -> Words:
    """Why an arm was not measured to its end, or is not kept although it may be faster."""
    failure, quality = outcome.failed.get(arm, ""), outcome.quality.get(frozenset({arm}))
    if failure:
        return Words(f"it failed: {failure}", f"运行失败：{failure}")
    if quality is not None and not quality.passed:
        return Words("its answers are not as good", "它的回答质量不够好")
    if arm in outcome.left_out:
        return Words("no time was left for it", "没有时间尝试它")
    if arm in outcome.dropped:
        pairs = outcome.dropped[arm]
        return Words(
            f"it plainly costs, and its runs take long: no more of it after {pairs} pairs",
            f"它明显变差，而且每次运行很久：{pairs} 对之后不再测量",
        )
    if arm in outcome.unconfirmed:
        return Words(
            "it looked better, and no time was left to confirm it: give a longer --budget",
            "它看起来更好，但没有时间确认：请给更长的 --budget",
        )
    if arm not in outcome.claims:
        return Words("it could not be told from the others", "无法把它与其他取值区分开")
    return same("")


def _skipped(space: Space, choice: Choice) -> list[Row]:
    rows = []
    for one in choice.skipped:
        knob = space.find(one.arm.knob)
        row = Row(
            knob=knob.name,
            value=one.arm.value,
            label=one.arm.label,
            what=knob.what,
            what_zh=knob.what_zh,
            verdict=None,
            numerics=knob.numerics,
            kept=False,
            confirmed=False,
            measured=None,
            predicted=None,
            prediction="",
            refused=one.why.en,
            refused_zh=one.why.zh,
        )
        rows.append(row)
    return rows


def _comparison(folder: Path, lab: Lab, outcome: Outcome) -> Comparison | None:
    """Every figure of the fresh pairs."""
    first, last = outcome.fresh_blocks
    blocks: dict[int, dict[Config, Run]] = {}
    for kept in lab.runs:
        if first and first <= kept.block <= last and kept.run.value is not None and kept.run.result:
            blocks.setdefault(kept.block, {})[kept.config] = kept.run
    pairs = [
        (load_result(folder / runs[BASELINE].result), load_result(folder / runs[outcome.kept].result))
        for runs in blocks.values()
        if len(runs) == 2 and lab.gain(runs[BASELINE], runs[outcome.kept]) is not None
    ]
    return compare_pairs(pairs, ("before", "after")) if pairs else None


def _points(lab: Lab, kept: Config) -> list[Point]:
    by_config: dict[Config, list[Mapping[str, float]]] = {}
    for one in lab.runs:
        if one.run.value is not None and one.run.figures:
            by_config.setdefault(one.config, []).append(one.run.figures)
    return [
        Point(
            label=named(config),
            runs=len(runs),
            figures={name: statistics.median([run[name] for run in runs if name in run]) for name in runs[0]},
            kept=bool(kept) and config == kept,
            baseline=config == BASELINE,
        )
        for config, runs in by_config.items()
    ]


def _gain(found: Estimate) -> Gain:
    ends = [found.low, found.high]
    low, high = (_share(end) if math.isfinite(end) else None for end in ends)
    return Gain(gain=_share(found.gain), low=low, high=high, pairs=found.pairs)


def _share(gain: float) -> float:
    return math.expm1(min(gain, 50.0))
