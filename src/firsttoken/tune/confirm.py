"""The claim: the config, the baseline and the config without each of its knobs, on fresh launches in random order.

Nothing that chose the config counts here. Looks are planned before the first block, and each may spend its share of
alpha; so a session may end early without finding more by looking more often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken.bench.statistics import MINIMUM_PAIRS
from firsttoken.tune.arms import BASELINE, Arm, Config, in_order, named
from firsttoken.tune.lab import Lab, Run, Said
from firsttoken.tune.stats import Estimate, Verdict, estimate, holm, looks_for, verdict, wilson_low

MOST_BLOCKS = 12
LEAST_FRESH_PAIRS = 2
_GIVEN_UP = 2  # blocks in which the config failed


@dataclass(frozen=True, slots=True)
class Claim:
    """One knob of the config: what it adds to all the others."""

    found: Estimate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A config after its blocks."""

    config: Config
    overall: Claim | None  # over the baseline; None where too little was measured
    knobs: dict[Arm, Claim]
    without: dict[Arm, Estimate]  # gain over the baseline of the config without this arm
    blocks: int
    slo_share: float  # lower bound of the share of requests within the limits
    slo_baseline: float  # share of the baseline's


def confirm(lab: Lab, config: Config, shown: Sequence[Arm], *, least: float, alpha: float, reserve: float) -> Confirmed:
    """Measures blocks until every claim is settled, the looks are over, or only `reserve` seconds are left.

    `shown`: arms of which it is measured what each adds.
    """
    sides = _sides(config, shown)
    each = lab.seconds_of([config, *sides.values()])
    most = min(int((lab.left - reserve) / each), MOST_BLOCKS)
    looks = looks_for(most)
    done: list[dict[Config, Run]] = []
    claims: dict[Arm | None, Claim] = {}
    failures, looked, repeated = 0, 0, lab.repeats.seconds

    def is_cut_short() -> bool:
        """Whether repeats of disturbed runs took the time of the next block."""
        return len(done) >= MINIMUM_PAIRS and lab.repeats.seconds > repeated and lab.left < reserve + each

    for end, share in looks:
        while len(done) < end and failures < _GIVEN_UP and not is_cut_short():
            least_blocks = max(MINIMUM_PAIRS - len(done) - 1, 0) * each
            block = lab.block([config, *sides.values()], after=reserve + least_blocks)
            if config not in block:
                failures += 1
                continue
            done.append(block)
        if failures >= _GIVEN_UP or len(done) == looked:
            break
        looked = len(done)
        claims = _look(lab, config, sides, done, claims, least, alpha * share)
        if all(_settled(claim, least) for claim in claims.values()):
            break
    for arm in in_order(config):
        if arm in claims:
            claim = claims[arm]
            lab.tell(
                Said(f"{arm.label}: {claim.verdict}, {math.expm1(claim.found.gain):+.1%} after {len(done)} blocks")
            )
    met, of = _slo(done, config)
    baseline_met, baseline_of = _slo(done, BASELINE)
    return Confirmed(
        config=config,
        overall=claims.get(None),
        knobs={arm: claim for arm, claim in claims.items() if arm is not None},
        without={
            arm: estimate(gains) for arm in shown if (gains := _gains(lab, done, config - {arm})) and len(config) > 1
        },
        blocks=len(done),
        slo_share=wilson_low(met, of),
        slo_baseline=baseline_met / baseline_of if baseline_of else 0.0,
    )


def least_seconds(lab: Lab, config: Config, shown: Sequence[Arm]) -> float:
    """What it takes at least to claim anything of a config and of arms of it, and then to measure it afresh."""
    blocks = MINIMUM_PAIRS * lab.seconds_of([config, *_sides(config, shown).values()])
    return blocks + LEAST_FRESH_PAIRS * lab.seconds_of([BASELINE, config])


def _gains(lab: Lab, done: Sequence[dict[Config, Run]], config: Config) -> list[float]:
    """Over the baseline, in the blocks where both can be compared."""
    return _between(lab, done, BASELINE, config)


def _between(lab: Lab, done: Sequence[dict[Config, Run]], first: Config, second: Config) -> list[float]:
    gains = [lab.gain(block[first], block[second]) for block in done if first in block and second in block]
    return [gain for gain in gains if gain is not None]


def _sides(config: Config, shown: Sequence[Arm]) -> dict[Arm | None, Config]:
    """What each claim compares the config with; None is the claim of the whole."""
    sides: dict[Arm | None, Config] = {None: BASELINE}
    return sides | {arm: config - {arm} for arm in shown}


def _look(
    lab: Lab,
    config: Config,
    sides: dict[Arm | None, Config],
    done: Sequence[dict[Config, Run]],
    before: dict[Arm | None, Claim],
    least: float,
    alpha: float,
) -> dict[Arm | None, Claim]:
    found: dict[Arm | None, Estimate] = {}
    for arm, other in sides.items():
        gains = _between(lab, done, other, config)
        if gains:
            found[arm] = estimate(gains)
    # The whole of a config of one knob is that knob's claim: one hypothesis, not two.
    tested = {arm: one.p for arm, one in found.items() if arm is not None or len(config) > 1}
    levels = holm(tested, alpha)
    if len(config) == 1:
        levels[None] = min(levels.values(), default=alpha)
    claims = {}
    for arm, one in found.items():
        earlier = before.get(arm)
        if earlier is not None and earlier.verdict == "helps":
            claims[arm] = earlier  # claimed at an earlier look, within that look's alpha
            continue
        leveled = replace(one, level=levels[arm])
        claims[arm] = Claim(leveled, verdict(leveled, least))
    return claims


def _settled(claim: Claim, least: float) -> bool:
    """Whether more blocks could not change what is kept."""
    return claim.verdict in ("helps", "hurts") or claim.found.gain + claim.found.half(0.05) < least


def _slo(done: Sequence[dict[Config, Run]], config: Config) -> tuple[int, int]:
    runs = [block[config] for block in done if config in block]
    return sum(run.slo_met for run in runs), sum(run.slo_of for run in runs)


def weakest(found: Confirmed) -> Arm:
    """The arm that adds least to the config, of those of which that was measured."""
    return min(in_order(found.knobs), key=lambda arm: found.knobs[arm].found.gain)


def sentence(found: Confirmed) -> str:
    """What a round of blocks said."""
    if found.overall is None:
        return f"{named(found.config)}: nothing can be said, since no block of runs was whole"
    gain = math.expm1(found.overall.found.gain)
    return f"{named(found.config)}: {gain:+.1%} over the baseline in {found.blocks} blocks"
