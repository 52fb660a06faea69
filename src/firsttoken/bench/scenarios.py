"""The scenarios that come with firsttoken (scenarios.toml), and how they are chosen by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from firsttoken.bench.recipe import Recipe, build, fit, load_file
from firsttoken.bench.scenario import Scenario
from firsttoken.errors import ConfigError

SHORT_SET = ("quicksort", "long-4k", "blurbs", "support")
"""What runs when nobody names a scenario: well under a minute on a GPU, a few minutes on a CPU with the demo."""


@cache
def built_in() -> dict[str, Recipe]:
    """By name, in the order of their file."""
    return load_file(Path(__file__).with_name("scenarios.toml"))


def choose(names: Sequence[str], own: Mapping[str, Recipe] | None = None) -> list[Recipe]:
    """The named recipes, a user's own before a built-in one of the same name.

    Without names: all of the user's own, or else the short set; "all" is every one. Raises ConfigError.
    """
    known = {**built_in(), **(own or {})}
    wanted = list(names) or list(own or SHORT_SET)
    if wanted == ["all"]:
        wanted = list(known)
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
            raise ConfigError(f"There is no scenario {name!r}: {hint}")
    return [known[name] for name in dict.fromkeys(wanted)]


def plan(recipes: Sequence[Recipe], max_model_len: int | None) -> tuple[list[Scenario], list[str]]:
    """Scenarios that fit the server's context, and a sentence for each that was scaled down or left out.

    Raises ConfigError where none is left.
    """
    scenarios: list[Scenario] = []
    notes: list[str] = []
    for recipe in recipes:
        fitted = fit(recipe, max_model_len)
        if fitted.note:
            notes.append(fitted.note)
        if fitted.recipe is not None:
            scenarios.append(build(fitted.recipe))
    if not scenarios:
        raise ConfigError(" ".join(["No scenario fits this server.", *notes]))
    return scenarios, notes
