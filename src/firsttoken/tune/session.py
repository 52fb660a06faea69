"""A session from the baseline to the verdicts: noise, screening, quality, search, confirmation, a last fresh look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken.bench.words import Words, same
from firsttoken.tune.arms import BASELINE, Arm, Candidate, Config, in_order, named
from firsttoken.tune.confirm import (
    LEAST_FRESH_PAIRS,
    Claim,
    Confirmed,
    confirm,
    least_seconds,
    sentence,
    weakest,
)
from firsttoken.tune.lab import Lab, Said, Stage
from firsttoken.tune.quality import Quality
from firsttoken.tune.screener import FINALISTS, Screener, best_of_each
from firsttoken.tune.screening import Screening
from firsttoken.tune.search import combinations, search
from firsttoken.tune.stats import ALPHA, MARGIN, Estimate, estimate, verdict

_FRESH_PAIRS = 8
_CONFIRMATION = 40  # runs that a search leaves
_UNSURE = 0.2  # level of the intervals that choose what is looked at again
_ROUND = 0.7  # of what is left of alpha, for a round of confirmation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a session found. Gains are logarithms."""

    noise: float  # standard deviation of a pair's gain
    least: float  # gain from which an arm is kept
    most_left: float  # what any arm may still gain, at most
    screening: Screening
    claims: dict[Arm, Claim]  # the last word on each arm
    confirmed: dict[Arm, Claim]  # of those, what fresh blocks said
    failed: dict[Arm, str]
    quality: dict[Config, Quality]
    left_out: list[Arm]  # no time
    dropped: dict[Arm, int]  # plain losses, and the pairs after which they were measured no more
    unconfirmed: list[Arm]  # looked better, and no time was left to confirm them
    rounds: list[Confirmed]
    kept: Config
    why: Words  # why nothing is kept, or why something is that was not shown by itself
    fresh: Estimate | None  # of the kept config over the baseline, from runs that decided nothing
    fresh_blocks: tuple[int, int]  # the first and the last block of those runs; (0, 0) without them


class Session:
    """One session in a lab. `run` may be called once."""

    def __init__(
        self,
        lab: Lab,
        candidates: Sequence[Candidate],
        *,
        seed: int,
        slo_share: float = 0.0,
        margin: float = MARGIN,
        alpha: float = ALPHA,
    ) -> None:
        self._lab = lab
        self._candidates = {one.arm: one for one in candidates}
        self._screener = Screener(lab, self._candidates, seed=seed, margin=margin, alpha=alpha)
        self._seed, self._slo_share, self._margin, self._alpha = seed, slo_share, margin, alpha
        self._quality: dict[Config, Quality] = {}
        self._rounds: list[Confirmed] = []
        self._unconfirmed: list[Arm] = []

    def run(self) -> Outcome:
        lab, screener = self._lab, self._screener
        screener.run()
        found, least = self._found()
        kept, why = self._choose(found, least)
        while not (kept or self._rounds or self._unconfirmed) and screener.widen():
            found, least = self._found()
            kept, why = self._choose(found, least)
        refused = {
            arm for config, one in self._quality.items() if not one.passed and len(config) == 1 for arm in config
        }
        if not kept:
            screener.go_on(refused)
            found, least = self._found()
        claims = {arm: Claim(one, screener.verdict(arm, found, least)) for arm, one in found.arms.items()}
        confirmed = {arm: claim for one in self._rounds for arm, claim in one.knobs.items()}
        fresh, blocks = self._fresh(kept)
        return Outcome(
            noise=found.noise,
            least=least,
            most_left=max((one.most for arm, one in found.arms.items() if arm not in refused), default=0.0),
            screening=found,
            claims=claims | confirmed,
            confirmed=confirmed,
            failed=lab.failed_arms(screener.arms),
            quality=self._quality,
            unconfirmed=self._unconfirmed,
            left_out=[arm for arm in self._candidates if arm not in screener.arms],
            dropped=screener.dropped,
            rounds=self._rounds,
            kept=kept,
            why=why,
            fresh=fresh,
            fresh_blocks=blocks,
        )

    def _found(self) -> tuple[Screening, float]:
        """What all pairs say together, and the gain from which an arm is kept."""
        found = self._screener.found()
        return found, max(self._margin, min(found.noise, 1.0))

    # --- what is kept ---

    def _choose(self, found: Screening, least: float) -> tuple[Config, Words]:
        lab = self._lab
        hopeful = [arm for arm, one in found.arms.items() if _may_help(one, least)]
        for arm in hopeful:
            lab.tell(Said(f"{arm.label} may help: {math.expm1(found.arms[arm].gain):+.1%} in screening"))
        if not hopeful:
            return BASELINE, _NONE_BETTER
        finalists = self._good_finalists(hopeful, found, least)
        if not hopeful:
            return BASELINE, _NO_QUALITY
        if not finalists:
            return BASELINE, _TOO_SHORT
        config, pairs = lab.without_failures(frozenset(finalists)), (lab.runs_left - _CONFIRMATION) // 2
        if pairs > 0:
            knobs = {arm.knob for arm in finalists}
            values = {
                knob: [arm for arm in hopeful if arm.knob == knob and self._is_good(frozenset({arm}))] for knob in knobs
            }
            if combinations(values) > 1:
                lab.tell(Stage("search", f"{combinations(values)} combinations of {len(knobs)} knobs"))
                kept = _CONFIRMATION * lab.run_seconds
                config = search(lab, values, config, pairs, self._seed, after=kept)
        return self._confirmed(config, found, least)

    def _good_finalists(self, hopeful: list[Arm], found: Screening, least: float) -> list[Arm]:
        """Those whose answers are as good; others leave `hopeful`. The gate takes time, so no other is sent there."""
        while True:
            best = best_of_each({arm: found.arms[arm].gain for arm in hopeful})
            order = sorted(best, key=lambda arm: -found.arms[arm].gain)
            finalists = self._finalists(order, found, least)
            self._unconfirmed = [arm for arm in order if arm not in finalists]
            asked = len(self._quality)
            bad = [arm for arm in finalists if not self._is_good(frozenset({arm}))]
            if not bad and len(self._quality) == asked:
                return finalists
            for arm in bad:
                hopeful.remove(arm)

    def _finalists(self, order: Sequence[Arm], found: Screening, least: float) -> list[Arm]:
        """The best arms, as many as can be confirmed together in the time that is left.

        Where it is too short for a second round, an arm that falls would cost the others' claims: then those alone go
        on that are likely to gain.
        """
        chosen = list(order[:FINALISTS])
        if chosen and 2 * least_seconds(self._lab, frozenset(chosen), chosen) > self._lab.left:
            sure = [arm for arm in order if found.arms[arm].gain > found.arms[arm].half(_UNSURE)]
            chosen = (sure or list(order))[:FINALISTS]
        while chosen and self._to_show(frozenset(chosen), found, least) is None:
            chosen.pop()
        return chosen

    def _to_show(self, config: Config, found: Screening, least: float) -> list[Arm] | None:
        """Arms of which a confirmation has the time to show what each adds: all of them, where that can be.

        Where not, those whose interval in screening lies above zero may go with the others, the surest first; the whole
        is confirmed all the same. None where there is not even the time for that.
        """
        shown = in_order(config)
        while least_seconds(self._lab, config, shown) > self._lab.left:
            sure = [
                arm
                for arm in shown
                if (one := found.arms.get(arm)) and one.gain >= least and one.p <= one.level and len(config) > 1
            ]
            if not sure:
                return None
            shown.remove(min(sure, key=lambda arm: found.arms[arm].p))
        return shown

    def _confirmed(self, config: Config, screened: Screening, least: float) -> tuple[Config, Words]:
        """Rounds of blocks, in each of which the weakest arm falls, until every arm of the config helps."""
        lab, alpha = self._lab, self._alpha
        while config:
            several = sum(self._candidates[arm].numerics for arm in config) > 1
            if several and not self._is_good(config):
                config -= {max(in_order(config), key=lambda arm: self._candidates[arm].numerics)}
                continue
            shown = self._to_show(config, screened, least)
            if shown is None or len(shown) < len(config):
                whole, why = self._as_a_whole(least, alpha * (1 - _ROUND))
                if whole or shown is None:
                    return whole, why
            lab.tell(Stage("confirmation", named(config)))
            pair = lab.seconds_of([BASELINE, config])
            room = lab.left - least_seconds(lab, config, shown)
            fresh = _FRESH_PAIRS if room >= (_FRESH_PAIRS - LEAST_FRESH_PAIRS) * pair else LEAST_FRESH_PAIRS
            found = confirm(lab, config, shown, least=least, alpha=alpha * _ROUND, reserve=fresh * pair)
            alpha *= 1 - _ROUND
            self._rounds.append(found)
            lab.tell(Said(sentence(found)))
            if found.overall is None:
                return BASELINE, _FAILED if config in lab.failed else _TOO_SHORT
            if all(claim.verdict == "helps" for claim in found.knobs.values()) and found.overall.verdict == "helps":
                refused = self._misses_slo(found)
                if refused:
                    return BASELINE, refused
                return config, same("") if len(shown) == len(config) else _AS_A_WHOLE
            if found.overall.found.low <= 0 or len(config) == 1 or not found.knobs:
                return BASELINE, _NOT_CONFIRMED
            config -= {weakest(found)}
        return BASELINE, _NO_QUALITY

    def _as_a_whole(self, least: float, alpha: float) -> tuple[Config, Words]:
        """What the last round lets be kept where no time is left for another: its config, or all but its weakest arm.

        Both ran beside the baseline in each block. Which arm falls was seen in the same data, so `alpha` is shared out
        over all that might have fallen. Best is a rest of which each arm was shown to help; else what helps as a whole
        may be kept, if no arm of it looks idle.
        """
        last = self._rounds[-1] if self._rounds else None
        if last is None or last.overall is None or not last.knobs:
            return BASELINE, _TOO_SHORT
        weak = weakest(last)
        rest = last.config - {weak}
        others = [last.knobs[arm] for arm in in_order(rest) if arm in last.knobs]
        one = replace(last.without[weak], level=alpha / len(last.config)) if weak in last.without else None
        rest_helps = one is not None and verdict(one, least, self._margin) == "helps"
        # How often the rest keeps the limits was not counted, and its answers were not looked at as a whole.
        rest_helps = rest_helps and not self._slo_share and sum(self._candidates[arm].numerics for arm in rest) < 2
        if rest_helps and len(others) == len(rest) and all(claim.verdict == "helps" for claim in others):
            return rest, same("")
        busy = last.knobs[weak].found.gain >= self._margin
        if busy and last.overall.verdict == "helps" and self._misses_slo(last) is None:
            return last.config, _AS_A_WHOLE
        if rest_helps and all(claim.found.gain >= self._margin for claim in others):
            return rest, _AS_A_WHOLE
        return BASELINE, _TOO_SHORT

    def _misses_slo(self, found: Confirmed) -> Words | None:
        """Why the limits rule a config out; None where they do not."""
        if found.slo_share >= min(self._slo_share, found.slo_baseline):
            return None
        kept, before, wanted = f"{found.slo_share:.0%}", f"{found.slo_baseline:.0%}", f"{self._slo_share:.0%}"
        return Words(
            f"{named(found.config)} is faster, but maybe only {kept} of its requests keep the limits; the baseline "
            f"keeps them for {before}, and {wanted} are wanted.",
            f"{named(found.config)} 更快，但满足限制的请求可能只有 {kept}；基线为 {before}，要求为 {wanted}。",
        )

    def _is_good(self, config: Config) -> bool:
        """Whether the answers are as good; settings that cannot change them are."""
        if not any(self._candidates[arm].numerics for arm in config):
            return True
        if config not in self._quality:
            self._lab.tell(Stage("quality", named(config)))
            self._quality[config] = self._lab.quality(config)
            self._lab.tell(Said(f"Quality of {named(config)}: {self._quality[config].text}"))
        return self._quality[config].passed

    def _fresh(self, kept: Config) -> tuple[Estimate | None, tuple[int, int]]:
        """The reported gain: selection makes what was selected look better, so it comes from new runs."""
        lab = self._lab
        if not kept:
            return None, (0, 0)
        each = lab.seconds_of([BASELINE, kept])
        pairs = max(min(_FRESH_PAIRS, int(lab.left / each)), LEAST_FRESH_PAIRS)
        lab.tell(Stage("fresh", f"{named(kept)} against the baseline, {pairs} fresh pairs"))
        before, unlike = lab.blocks, len(lab.unlike)
        gains = [lab.pair(BASELINE, kept, after=(pairs - number) * each) for number in range(1, pairs + 1)]
        known = [gain for gain in gains if gain is not None]
        if lab.is_restless:
            known += [gain for _, _, gain in lab.unlike[unlike:]]
        return (estimate(known) if known else None), (before + 1, lab.blocks)


def _may_help(one: Estimate, least: float) -> bool:
    """Whether a gain worth keeping is likely enough to look again."""
    return one.gain > 0 and one.gain + one.half(_UNSURE) >= least


_NONE_BETTER = Words(
    "No value of a knob looked better than the baseline in screening.", "筛选中没有任何取值看起来比基线更好。"
)
_TOO_SHORT = Words("The time was too short to confirm what looked better.", "时间不足以确认那些看起来更好的取值。")
_FAILED = Words("What looked better failed when it was launched again.", "看起来更好的组合在再次启动时失败了。")
_NOT_CONFIRMED = Words(
    "What looked better in screening was not confirmed on fresh launches.",
    "筛选中看起来更好的取值，没有在全新启动上得到确认。",
)
_NO_QUALITY = Words("What looked better does not keep the answers' quality.", "看起来更好的取值不能保持回答质量。")
_AS_A_WHOLE = Words(
    "The settings are confirmed together; the time was too short to show each of them by itself.",
    "这些设置作为一个整体得到确认；时间不足以逐项单独证明。",
)
