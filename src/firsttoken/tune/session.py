"""A session from the baseline to the verdicts: noise, screening, quality, search, confirmation, a last fresh look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken.bench.statistics import MINIMUM_PAIRS
from firsttoken.tune.arms import BASELINE, Arm, Config, in_order, named
from firsttoken.tune.confirm import Claim, Confirmed, confirm, sentence, weakest
from firsttoken.tune.lab import Lab, Said, Stage
from firsttoken.tune.quality import Quality
from firsttoken.tune.screening import Measured, Screening, fit, plan_pairs
from firsttoken.tune.search import combinations, search
from firsttoken.tune.stats import ALPHA, MARGIN, Estimate, Verdict, estimate, verdict

_NOISE_PAIRS, _LEAST_NOISE_PAIRS = 3, 2
_SHORT = 40  # runs; with fewer left after the first pair, a session saves where it can
_SPARE, _LEAST_SPARE = 7, 3  # pairs beyond the number of arms, which tell the noise
_EACH, _LEAST_EACH = 6, 4  # pairs in which each arm is seen at least; with fewer than 6 nothing is said to hurt
_FINALISTS = 4  # arms that are confirmed together at most
_FRESH_PAIRS, _LEAST_FRESH_PAIRS = 8, 2
_ROUND = 0.7  # of what is left of alpha, for a round of confirmation


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arm that is to be tried."""

    arm: Arm
    numerics: bool = False  # whether answers may change, so that quality must be shown
    predicted: float | None = None  # gain


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a session found. Gains are logarithms."""

    noise: float  # standard deviation of a pair's gain
    least: float  # gain from which an arm is kept
    screening: Screening
    claims: dict[Arm, Claim]  # the last word on each arm
    confirmed: dict[Arm, Claim]  # of those, what fresh blocks said
    failed: dict[Arm, str]
    quality: dict[Config, Quality]
    left_out: list[Arm]  # no time
    unconfirmed: list[Arm]  # looked better, and no time was left to confirm them
    rounds: list[Confirmed]
    kept: Config
    why_none: str  # why nothing is kept, or why the search broke off
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
        self._seed, self._slo_share, self._margin, self._alpha = seed, slo_share, margin, alpha
        self._quality: dict[Config, Quality] = {}
        self._rounds: list[Confirmed] = []
        self._unconfirmed: list[Arm] = []

    def run(self) -> Outcome:
        lab = self._lab
        measured = self._noise()
        arms = self._affordable()
        measured += self._screen(arms)
        lost = lab.failed_arms(arms)
        tried = [arm for arm in arms if arm not in lost]
        found = fit(measured, tried, self._alpha)
        least = max(self._margin, min(found.noise, 1.0))
        claims = {arm: Claim(one, _screened(one, least, self._margin)) for arm, one in found.arms.items()}
        kept, why = self._choose(found, least)
        confirmed = {arm: claim for one in self._rounds for arm, claim in one.knobs.items()}
        fresh, blocks = self._fresh(kept)
        return Outcome(
            noise=found.noise,
            least=least,
            screening=found,
            claims=claims | confirmed,
            confirmed=confirmed,
            failed=lost,
            quality=self._quality,
            unconfirmed=self._unconfirmed,
            left_out=[arm for arm in self._candidates if arm not in arms],
            rounds=self._rounds,
            kept=kept,
            why_none=why,
            fresh=fresh,
            fresh_blocks=blocks,
        )

    # --- noise and screening ---

    def _noise(self) -> list[Measured]:
        self._lab.tell(Stage("noise", "The baseline against itself"))
        gains = [self._lab.pair(BASELINE, BASELINE)]
        pairs = _NOISE_PAIRS if self._lab.runs_left >= _SHORT else _LEAST_NOISE_PAIRS
        gains += [self._lab.pair(BASELINE, BASELINE) for _ in range(pairs - 1)]
        return [(BASELINE, BASELINE, gain) for gain in gains if gain is not None]

    def _affordable(self) -> list[Arm]:
        """Arms whose screening takes at most half of the time left; those that promise least are left out first."""
        arms = list(self._candidates)

        def promise(arm: Arm) -> float:
            predicted = self._candidates[arm].predicted
            return abs(predicted) if predicted is not None else self._margin

        while len(arms) > 1 and 2 * _pairs_for(arms, _LEAST_SPARE, _LEAST_EACH) > self._lab.runs_left / 2:
            arms.remove(min(arms, key=promise))
        return arms

    def _screen(self, arms: Sequence[Arm]) -> list[Measured]:
        lab = self._lab
        pairs = _pairs_for(arms, _SPARE, _EACH)
        if 2 * pairs > lab.runs_left / 2:
            pairs = min(_pairs_for(arms, _LEAST_SPARE, _LEAST_EACH), lab.runs_left // 2)
        lab.tell(Stage("screening", f"{len(arms)} values of {len({arm.knob for arm in arms})} knobs in {pairs} pairs"))
        measured: list[Measured] = []
        for first, second in plan_pairs(arms, pairs, self._seed) if pairs else []:
            first, second = lab.without_failures(first), lab.without_failures(second)
            gain = lab.pair(first, second)
            if gain is not None:
                measured.append((first, second, gain))
                continue
            for config in (first, second):
                if config in lab.failed:
                    lab.find_culprits(config)
        return measured

    # --- what is kept ---

    def _choose(self, found: Screening, least: float) -> tuple[Config, str]:
        lab = self._lab
        hopeful = [arm for arm, one in found.arms.items() if _may_help(one, least)]
        for arm in hopeful:
            lab.tell(Said(f"{arm.label} may help: {found.arms[arm].gain:+.1%} in screening"))
        hopeful = [arm for arm in hopeful if self._is_good(frozenset({arm}))]
        best = _best_of_each(hopeful, found)
        if not best:
            return BASELINE, "No value of a knob looked better than the baseline in screening."
        order = sorted(best, key=lambda arm: -found.arms[arm].gain)
        finalists = order[: _finalists(lab.runs_left)]
        self._unconfirmed = order[len(finalists) :]
        knobs = {arm.knob for arm in finalists}
        values = {knob: [arm for arm in hopeful if arm.knob == knob] for knob in knobs}
        config = lab.without_failures(frozenset(finalists))
        if combinations(values) > 1:
            lab.tell(Stage("search", f"{combinations(values)} combinations of {len(knobs)} knobs"))
            config = search(lab, values, config, max((lab.runs_left - 40) // 2, 0), self._seed)
        return self._confirmed(config, least)

    def _confirmed(self, config: Config, least: float) -> tuple[Config, str]:
        """Rounds of blocks, in each of which the weakest arm falls, until every arm of the config helps."""
        lab, alpha = self._lab, self._alpha
        while config:
            several = sum(self._candidates[arm].numerics for arm in config) > 1
            if several and not self._is_good(config):
                config -= {max(in_order(config), key=lambda arm: self._candidates[arm].numerics)}
                continue
            lab.tell(Stage("confirmation", named(config)))
            needed = MINIMUM_PAIRS * _runs_a_block(len(config))
            fresh = _FRESH_PAIRS if needed + 2 * _FRESH_PAIRS <= lab.runs_left else _LEAST_FRESH_PAIRS
            found = confirm(lab, config, least=least, alpha=alpha * _ROUND, reserve=2 * fresh)
            alpha *= 1 - _ROUND
            self._rounds.append(found)
            lab.tell(Said(sentence(found)))
            if found.overall is None:
                return BASELINE, "The time was too short to confirm what looked better."
            if all(claim.verdict == "helps" for claim in found.knobs.values()) and found.overall.verdict == "helps":
                refused = self._misses_slo(found)
                return (BASELINE, refused) if refused else (config, "")
            if found.overall.found.low <= 0 or len(config) == 1:
                return BASELINE, "What looked better in screening was not confirmed on fresh launches."
            config -= {weakest(found)}
        return BASELINE, "No combination kept the answers' quality."

    def _misses_slo(self, found: Confirmed) -> str:
        """Why the limits rule a config out; empty where they do not."""
        if found.slo_share >= min(self._slo_share, found.slo_baseline):
            return ""
        return (
            f"{named(found.config)} is faster, but maybe only {found.slo_share:.0%} of its requests keep the limits; "
            f"the baseline keeps them for {found.slo_baseline:.0%}, and {self._slo_share:.0%} are wanted."
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
        pairs = max(min(_FRESH_PAIRS, lab.runs_left // 2), _LEAST_FRESH_PAIRS)
        lab.tell(Stage("fresh", f"{named(kept)} against the baseline, {pairs} fresh pairs"))
        before = lab.blocks
        gains = [lab.pair(BASELINE, kept) for _ in range(pairs)]
        known = [gain for gain in gains if gain is not None]
        return (estimate(known) if known else None), (before + 1, lab.blocks)


def _runs_a_block(arms: int) -> int:
    """The config, the baseline, and the config without each arm, which of one arm is the baseline."""
    return 2 if arms == 1 else arms + 2


def _finalists(runs: int) -> int:
    """How many arms can be confirmed together in so many runs; one at least."""
    most = _FINALISTS
    while most > 1 and MINIMUM_PAIRS * _runs_a_block(most) + 2 * _LEAST_FRESH_PAIRS > runs:
        most -= 1
    return most


def _pairs_for(arms: Sequence[Arm], spare: int, each: int) -> int:
    values: dict[str, int] = {}
    for arm in arms:
        values[arm.knob] = values.get(arm.knob, 0) + 1
    return max(len(arms) + spare, each * max(values.values(), default=0))


def _screened(one: Estimate, least: float, margin: float) -> Verdict:
    """Screening may say that something hurts; that it helps must be seen again, since the best of many looks better."""
    said = verdict(one, least, margin)
    return "undecided" if said == "helps" else said


def _may_help(one: Estimate, least: float) -> bool:
    """Whether a gain worth keeping is likely enough to look again."""
    return one.gain > 0 and one.gain + one.half(0.2) >= least


def _best_of_each(arms: Sequence[Arm], found: Screening) -> list[Arm]:
    best: dict[str, Arm] = {}
    for arm in arms:
        if arm.knob not in best or found.arms[arm].gain > found.arms[best[arm.knob]].gain:
            best[arm.knob] = arm
    return list(best.values())


def best_left(found: Mapping[Arm, Estimate]) -> float:
    """The largest gain that the data leave possible for any arm."""
    return max((one.gain + one.half(one.level) for one in found.values()), default=0.0)
