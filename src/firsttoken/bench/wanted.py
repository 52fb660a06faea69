"""Load and lengths as a user asks for them on the command line: a scenario of their own, or changes to a named one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from firsttoken.bench.arrivals import read_trace
from firsttoken.bench.recipe import Prompt, Recipe, noted
from firsttoken.bench.records import Arrivals, LoadSpec
from firsttoken.errors import ConfigError

_INPUT, _OUTPUT = 512, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for; None and () leave a scenario as it is."""

    concurrencies: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    arrivals: Arrivals | None = None
    trace: Path | None = None
    requests: int | None = None
    duration: float | None = None
    warm_up: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    shared_tokens: int | None = None
    dataset: Path | None = None

    @property
    def anything(self) -> bool:
        return self != Wanted()

    @property
    def prompts(self) -> bool:
        """Whether the prompts are described too, so that this is a scenario by itself."""
        return any(one is not None for one in (self.input_tokens, self.shared_tokens, self.dataset))


def check(wanted: Wanted) -> None:
    """Raises ConfigError where the wishes contradict each other."""
    offered = [bool(wanted.concurrencies), bool(wanted.rates), wanted.trace is not None]
    if sum(offered) > 1:
        raise ConfigError("Give one of --concurrency, --rate and --trace: they are three ways to offer load.")
    if wanted.arrivals is not None and not wanted.rates:
        raise ConfigError("--arrivals shapes an open loop: give its --rate too.")
    if wanted.dataset is not None and wanted.input_tokens is not None:
        raise ConfigError("--dataset brings its own prompts, so leave --input-len out.")


def own_recipe(wanted: Wanted) -> Recipe:
    """A scenario named "custom" of nothing but the wishes."""
    check(wanted)
    if wanted.dataset is not None:
        prompt, title = Prompt(dataset=str(wanted.dataset)), wanted.dataset.name
        title_zh = title
    else:
        tokens, output = wanted.input_tokens or _INPUT, wanted.output_tokens or _OUTPUT
        prompt = Prompt(tokens=tokens, shared_tokens=wanted.shared_tokens or 0)
        title, title_zh = f"{tokens:,} tokens in, {output:,} out", f"输入 {tokens}，输出 {output}"
    recipe = Recipe(
        name="custom",
        title=title,
        title_zh=title_zh,
        prompt=prompt,
        output_tokens=wanted.output_tokens or _OUTPUT,
        cache="cold" if prompt.tokens and not prompt.shared_tokens else "any",
        load=LoadSpec(concurrency=1, warm_up=1),
    )
    lengths_done = replace(wanted, input_tokens=None, output_tokens=None, shared_tokens=None, dataset=None)
    return changed(recipe, lengths_done)


def changed(recipe: Recipe, wanted: Wanted) -> Recipe:
    """The recipe with the wishes in place of its own load and lengths. Raises ConfigError where it has none such."""
    check(wanted)
    if wanted.input_tokens is not None or wanted.shared_tokens is not None:
        if recipe.prompt.tokens is None:
            raise ConfigError(f"Scenario {recipe.name!r} has prompts of its own, so --input-len cannot change them.")
        prompt = Prompt(
            tokens=wanted.input_tokens or recipe.prompt.tokens,
            shared_tokens=wanted.shared_tokens or recipe.prompt.shared_tokens,
        )
        recipe = noted(
            msgspec.structs.replace(recipe, prompt=prompt), f"here {prompt.tokens:,} in", f"此处输入 {prompt.tokens}"
        )
    if wanted.output_tokens is not None:
        output = wanted.output_tokens
        recipe = noted(
            msgspec.structs.replace(recipe, output_tokens=output), f"here {output:,} out", f"此处输出 {output}"
        )
    if recipe.arrival is not None and (wanted.rates or wanted.trace or wanted.requests or wanted.duration):
        raise ConfigError(
            f"Scenario {recipe.name!r} has a schedule of its own, of which only --concurrency can be changed: "
            "run it without --requests, --duration, --rate and --trace."
        )
    return msgspec.structs.replace(recipe, **_load(recipe, wanted))


def _load(recipe: Recipe, wanted: Wanted) -> dict[str, object]:
    """Fields of the recipe that say how its requests are offered."""
    load, sweep, rates = recipe.load, list(recipe.concurrencies), list(recipe.rates)
    if wanted.concurrencies:
        load = msgspec.structs.replace(load, concurrency=wanted.concurrencies[0], rate=None, arrivals=None, trace=[])
        sweep, rates = list(wanted.concurrencies) if len(wanted.concurrencies) > 1 else [], []
        if recipe.arrival is not None and sweep:
            raise ConfigError(f"Scenario {recipe.name!r} takes one --concurrency at a time.")
    elif wanted.rates:
        arrivals = wanted.arrivals or "poisson"
        load = msgspec.structs.replace(load, concurrency=None, rate=wanted.rates[0], arrivals=arrivals, requests=None)
        sweep, rates = [], list(wanted.rates) if len(wanted.rates) > 1 else []
    elif wanted.trace is not None:
        trace = read_trace(wanted.trace)
        load = LoadSpec(arrivals="trace", trace=trace, requests=len(trace), warm_up=load.warm_up)
        sweep, rates = [], []
    if wanted.requests is not None or wanted.duration is not None:
        load = msgspec.structs.replace(load, requests=wanted.requests, duration=wanted.duration)
    elif wanted.concurrencies:
        load = msgspec.structs.replace(load, requests=None)  # four rounds of every slot
    if wanted.warm_up is not None:
        load = msgspec.structs.replace(load, warm_up=wanted.warm_up)
    return {"load": load, "concurrencies": sweep, "rates": rates}
