"""The best combination of the arms that screening left: proposals of a model, then successive halving.

Optuna's tree-structured Parzen estimator (Bergstra et al. 2011) proposes combinations from the gains seen so far. Each
is measured in a pair with the incumbent, which is the sum of the best arms. Those that look better get twice as many
pairs in each round, and the better half goes on (Karnin et al. 2013); what then is still better replaces the incumbent.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from firsttoken.errors import ConfigError
from firsttoken.tune.arms import BASELINE, Arm, Config, in_order, named
from firsttoken.tune.lab import Lab, Said

_PROPOSALS = 6  # at most
_ASKS = 24  # of the model, until it has named that many new ones
_RUNGS = (1, 2)  # further pairs of those that go on


def combinations(arms: Mapping[str, Sequence[Arm]]) -> int:
    """How many configs the arms of each knob allow, the baseline left out."""
    count = 1
    for values in arms.values():
        count *= len(values) + 1
    return count - 1


def search(
    lab: Lab, arms: Mapping[str, Sequence[Arm]], incumbent: Config, pairs: int, seed: int, *, after: float = 0.0
) -> Config:
    """The incumbent, or what beat it, within so many pairs. Only arms of the incumbent's knobs' kind are asked for.

    `after`: seconds that what follows needs.
    """
    if combinations(arms) < 2 or pairs < 1:
        return incumbent
    gains = _propose(lab, arms, incumbent, min(_PROPOSALS, pairs, combinations(arms) - 1), seed, after)
    left = pairs - sum(map(len, gains.values()))
    running = [config for config in gains if statistics.fmean(gains[config]) > 0]
    for more in _RUNGS:
        running = sorted(running, key=lambda config: -statistics.fmean(gains[config]))[: max(len(gains) // 2, 1)]
        for config in running:
            for _ in range(min(more, left)):
                left -= 1
                gain = lab.pair(incumbent, config, after=after)
                if gain is not None:
                    gains[config].append(gain)
        running = [config for config in running if statistics.fmean(gains[config]) > 0]
        running = running[: (len(running) + 1) // 2]
    if not running or len(gains[running[0]]) < 2:
        return incumbent
    best = running[0]
    lab.tell(Said(f"The search prefers {named(best)} to {named(incumbent)}."))
    return best


def _propose(
    lab: Lab, arms: Mapping[str, Sequence[Arm]], incumbent: Config, proposals: int, seed: int, after: float
) -> dict[Config, list[float]]:
    """Gains over the incumbent of what the model proposed, a pair each."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "Searching combinations needs Optuna, which is not installed: pip install 'firsttoken[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=3)
    )
    values = {knob: [arm.value for arm in in_order(choices)] for knob, choices in sorted(arms.items())}
    # Places instead of values: 1 and True are one choice to a dictionary.
    space: dict[str, optuna.distributions.BaseDistribution] = {
        knob: optuna.distributions.CategoricalDistribution(tuple(range(-1, len(choices))))
        for knob, choices in values.items()
    }
    chosen = {arm.knob: arm.value for arm in incumbent}
    places = {knob: values[knob].index(chosen[knob]) if knob in chosen else -1 for knob in values}
    study.add_trial(optuna.trial.create_trial(params=places, distributions=space, value=0.0))
    gains: dict[Config, list[float]] = {}
    for _ in range(_ASKS):
        if len(gains) == proposals:
            break
        trial = study.ask(space)
        config = frozenset(Arm(knob, values[knob][place]) for knob, place in trial.params.items() if place >= 0)
        config = lab.without_failures(config)
        if config in (incumbent, BASELINE):
            study.tell(trial, 0.0 if config == incumbent else _worst(gains))
            continue
        if config not in gains:
            gain = lab.pair(incumbent, config, after=after)
            if gain is None:
                study.tell(trial, _worst(gains))
                continue
            gains[config] = [gain]
        study.tell(trial, statistics.fmean(gains[config]))
    return gains


def _worst(gains: Mapping[Config, Sequence[float]]) -> float:
    """What a config that cannot or need not run is told to be worth."""
    return min((statistics.fmean(seen) for seen in gains.values()), default=0.0) - 0.1
