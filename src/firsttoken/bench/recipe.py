"""A recipe is a scenario as a file describes it, short enough to write by hand; `build` makes the scenario of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from firsttoken.bench.prompt_files import read_jsonl, read_sharegpt
from firsttoken.bench.records import Cache, LoadSpec
from firsttoken.bench.scenario import Dialogue, FixedDialogues, Parts, RandomPrompts, Scenario, Turn, Workload
from firsttoken.errors import ConfigError

_MARGIN = 64  # tokens left for a chat template and for tokenizers that disagree about a text
_LEAST_PROMPT = 256  # tokens; a "long" prompt below this would measure something else


class RecipeTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn of a scripted dialogue."""

    user: str
    assistant: str | None = None  # stands in the history instead of the model's own answer
    output_tokens: int | None = None  # the recipe's where left out


class Prompt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request sends: exactly one of `texts`, `tokens`, `turns` and `dataset`.

    `{unique}` in a text is replaced by a word that no run repeats.
    """

    texts: list[str] = []  # user messages, taken in turn
    tokens: int | None = None  # a generated prompt of this many tokens, never the same twice
    shared_tokens: int = 0  # of those, how many begin every prompt alike
    turns: list[RecipeTurn] = []  # a dialogue; each of its requests sends the whole history
    dataset: str | None = None  # a file of prompts: JSONL, or ShareGPT's JSON
    system: str = ""  # before texts and turns


class Arrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more request, of group "arrival", that comes when all the others (group "background") are decoding."""

    tokens: int  # of a generated prompt
    output_tokens: int
    after_chunks: int = 8  # that each of the others has had by then


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of work for a server. Token counts are per request."""

    name: str
    prompt: Prompt
    output_tokens: int
    load: LoadSpec
    title: str = ""
    title_zh: str = ""
    description: str = ""
    description_zh: str = ""
    cache: Cache = "any"
    ignore_eos: bool = True  # then every answer has exactly output_tokens, on every server that knows the field
    sampling: dict[str, float] = {}  # such as temperature; the server's defaults where left out
    extra_body: dict[str, Any] = {}  # fields joined into every request; --extra-body's come on top
    concurrencies: list[int] = []  # a sweep: one point each
    rates: list[float] = []  # a sweep of open-loop rates, requests a second
    arrival: Arrival | None = None


class Fitted(msgspec.Struct, frozen=True):
    """A recipe as a server with a given context can run it."""

    recipe: Recipe | None  # None: it cannot
    note: str = ""  # one sentence where it was scaled down or is skipped


def load_file(path: Path) -> dict[str, Recipe]:
    """A file's recipes: `[[scenario]]` tables in TOML, `{"scenario": [...]}` in JSON. Raises ConfigError."""
    try:
        data = path.read_bytes()
        decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
        tables = decode(data, type=dict[str, list[Recipe]])
    except OSError as error:
        raise ConfigError(f"The scenario file {path} cannot be read ({error.strerror}).") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"The scenario file {path} is wrong: {error}.") from None
    if list(tables) != ["scenario"]:
        raise ConfigError(f"The scenario file {path} must hold [[scenario]] tables and nothing else.")
    found: dict[str, Recipe] = {}
    for recipe in tables["scenario"]:
        if recipe.name in found:
            raise ConfigError(f"The scenario file {path} names two scenarios {recipe.name!r}.")
        check(recipe)
        found[recipe.name] = recipe
    return found


def check(recipe: Recipe) -> None:
    """Raises ConfigError where a recipe contradicts itself."""
    where, prompt, load, arrival = f"Scenario {recipe.name!r}", recipe.prompt, recipe.load, recipe.arrival
    if not recipe.name or "@" in recipe.name:
        raise ConfigError(f"{where} needs a name without '@', which marks a sweep's points.")
    if sum((bool(prompt.texts), prompt.tokens is not None, bool(prompt.turns), prompt.dataset is not None)) != 1:
        raise ConfigError(f"{where} needs exactly one of prompt.texts, prompt.tokens, prompt.turns and prompt.dataset.")
    numbers: dict[str, float | None] = {
        "prompt.tokens": prompt.tokens,
        "output_tokens": recipe.output_tokens,
        "load.concurrency": load.concurrency,
        "load.rate": load.rate,
        "load.requests": load.requests,
        "load.duration": load.duration,
        "arrival.tokens": arrival.tokens if arrival else None,
        "arrival.after_chunks": arrival.after_chunks if arrival else None,
        "concurrencies": min(recipe.concurrencies, default=None),
        "rates": min(recipe.rates, default=None),
    }
    for name, number in numbers.items():
        if number is not None and number <= 0:
            raise ConfigError(f"{where}: {name} must be above zero.")
    if (load.concurrency is None) == (load.arrivals is None):
        raise ConfigError(f"{where} needs load.concurrency (closed loop) or load.arrivals (open loop), not both.")
    if load.arrivals in ("poisson", "constant") and load.rate is None:
        raise ConfigError(f"{where}: {load.arrivals} arrivals need load.rate, in requests a second.")
    if recipe.concurrencies and recipe.rates:
        raise ConfigError(f"{where} sweeps concurrencies or rates, not both.")
    if arrival is not None and (prompt.tokens is None or load.concurrency is None or recipe.concurrencies):
        raise ConfigError(f"{where}: an arrival comes among prompt.tokens prompts at one load.concurrency.")


def fit(recipe: Recipe, max_model_len: int | None) -> Fitted:
    """Scales generated prompts down to a server's context, and skips where that would leave next to nothing.

    `max_model_len` None means that the server does not say: then nothing is changed.
    """
    if max_model_len is None:
        return Fitted(recipe)
    room = max_model_len - _MARGIN - recipe.output_tokens
    short = f"{recipe.name}: the server's context is {max_model_len:,} tokens"
    notes: list[str] = []
    if room < _LEAST_PROMPT:
        return Fitted(None, f"{short}, too few for {recipe.output_tokens:,} tokens out; skipped.")
    if recipe.prompt.tokens is not None and recipe.prompt.tokens > room:
        notes.append(f"prompts of {room:,} tokens instead of {recipe.prompt.tokens:,}")
        recipe = msgspec.structs.replace(recipe, prompt=msgspec.structs.replace(recipe.prompt, tokens=room))
        recipe = noted(recipe, f"here {room:,} in", f"此处输入 {room}")
    if recipe.arrival is not None:
        most = max_model_len - _MARGIN - recipe.arrival.output_tokens
        if recipe.arrival.tokens > most:
            notes.append(f"a long prompt of {most:,} tokens instead of {recipe.arrival.tokens:,}")
            recipe = msgspec.structs.replace(recipe, arrival=msgspec.structs.replace(recipe.arrival, tokens=most))
            recipe = noted(recipe, f"here {most:,} tokens", f"此处 {most} 个 token")
    return Fitted(recipe, f"{short}, so it sends {' and '.join(notes)}." if notes else "")


def noted(recipe: Recipe, note: str, note_zh: str) -> Recipe:
    """The recipe with a remark behind its titles, which may name lengths that no longer hold."""
    title, title_zh = recipe.title or recipe.name, recipe.title_zh or recipe.title or recipe.name
    return msgspec.structs.replace(recipe, title=f"{title} ({note})", title_zh=f"{title_zh}（{note_zh}）")


def build(recipe: Recipe) -> Scenario:
    """The scenario that a recipe describes."""
    arrival = recipe.arrival
    return Scenario(
        name=recipe.name,
        title=recipe.title or recipe.name,
        title_zh=recipe.title_zh,
        workload=_workload(recipe, group="background" if arrival else ""),
        loads=_loads(recipe),
        sweep="concurrency" if recipe.concurrencies else "rate" if recipe.rates else None,
        cache=recipe.cache,
        sampling=recipe.sampling,
        extra_body=recipe.extra_body,
    )


def _workload(recipe: Recipe, group: str) -> Workload:
    prompt = recipe.prompt
    if prompt.tokens is not None:
        plain = RandomPrompts(
            input_tokens=prompt.tokens,
            output_tokens=recipe.output_tokens,
            shared_prefix_tokens=prompt.shared_tokens,
            group=group,
        )
        if recipe.arrival is None:
            return plain
        long = RandomPrompts(
            input_tokens=recipe.arrival.tokens, output_tokens=recipe.arrival.output_tokens, group="arrival"
        )
        return Parts(counts=[recipe.load.concurrency or 1, 1], workloads=[plain, long])
    if prompt.dataset is not None:
        path = Path(prompt.dataset)
        return (read_sharegpt if _is_list(path) else read_jsonl)(path, recipe.output_tokens)
    spoken = [[RecipeTurn(user=text)] for text in prompt.texts] or [prompt.turns]
    return FixedDialogues(dialogues=[_dialogue(recipe, turns) for turns in spoken])


def _is_list(path: Path) -> bool:
    """Whether a file holds one JSON array, as ShareGPT's do, rather than a line of JSON for each prompt."""
    try:
        with path.open("rb") as file:
            return file.read(256).lstrip().startswith(b"[")
    except OSError:
        return False  # the reader says what is wrong


def _dialogue(recipe: Recipe, turns: list[RecipeTurn]) -> Dialogue:
    system = [{"role": "system", "content": recipe.prompt.system}] if recipe.prompt.system else []
    return Dialogue(
        turns=[
            Turn(
                messages=[*(system if number == 0 else []), {"role": "user", "content": turn.user}],
                max_tokens=turn.output_tokens or recipe.output_tokens,
                ignore_eos=recipe.ignore_eos,
                reply=turn.assistant,
            )
            for number, turn in enumerate(turns)
        ]
    )


def _loads(recipe: Recipe) -> list[LoadSpec]:
    load, arrival = recipe.load, recipe.arrival
    if arrival is not None:
        streams = load.concurrency or 1
        return [
            LoadSpec(
                concurrency=streams,
                requests=streams + 1,
                warm_up=load.warm_up,
                held=1,
                held_until=arrival.after_chunks,
            )
        ]
    if recipe.concurrencies:
        return [_closed(load, concurrency) for concurrency in recipe.concurrencies]
    if recipe.rates:
        return [_open(load, rate) for rate in recipe.rates]
    if load.open:
        return [_open(load, load.rate) if load.arrivals != "trace" else load]
    return [_closed(load, load.concurrency or 1)]


def _closed(load: LoadSpec, concurrency: int) -> LoadSpec:
    """Four rounds of every slot where nothing is said: the steady middle outweighs the ramps at both ends."""
    requests = load.requests if load.requests or load.duration else max(4 * concurrency, 8)
    return msgspec.structs.replace(load, concurrency=concurrency, requests=requests)


def _open(load: LoadSpec, rate: float | None) -> LoadSpec:
    duration = load.duration if load.requests or load.duration else 30.0
    return msgspec.structs.replace(
        load, concurrency=None, rate=rate, arrivals=load.arrivals or "poisson", duration=duration
    )
