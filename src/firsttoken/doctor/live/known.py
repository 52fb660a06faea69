"""What is known of a server's model and device without disturbing it: nothing is measured beside running steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from firsttoken.bench.model_costs import ModelCosts, find_model_costs, read_model_costs
from firsttoken.bench.records import ServerIdentity
from firsttoken.bench.roofline_judge import GivenRates, MachineCeilings
from firsttoken.doctor.data_sheet import by_data_sheet
from firsttoken.doctor.live.work import Bounds
from firsttoken.errors import ConfigError, ModelError
from firsttoken.machine.cards import BY_RATES, find_card
from firsttoken.machine.ceilings import MemoryCeiling, known_memory_ceiling
from firsttoken.machine.gpu import Gpu, read_gpus
from firsttoken.machine.gpu_ceilings import Ceilings, known_ceilings

_UNMEASURED = "nobody has measured this machine within a month; run `firsttoken doctor ceilings` while it is idle."


class Unmeasured(ConfigError):
    """Nothing is remembered of this host."""


def find_bounds(
    url: str,
    identity: ServerIdentity,
    *,
    model_config: Path | None = None,
    kv_element_bytes: float = 2.0,
    card_name: str | None = None,
    given: GivenRates | None = None,
    devices: int = 1,
    list_gpus: Callable[[], list[Gpu]] = read_gpus,
    known_gpu: Callable[[Gpu], Ceilings | None] = known_ceilings,
    known_memory: Callable[[], MemoryCeiling | None] = known_memory_ceiling,
) -> Bounds:
    """Costs by `model_config`, the server's own word, a local folder or the download cache; rates as given, as
    remembered, or by a card's data sheet. Raises ConfigError or ModelError for what was named and cannot be used.
    """
    card = identity.details
    name = card.get("root") or identity.model
    config = None if model_config is None else read_model_costs(model_config, kv_element_bytes)
    if config is None and (cached := _cached_config(name)) is not None:
        config = _read_quietly(cached, kv_element_bytes)
    costs = find_model_costs(name, card, config, kv_element_bytes)

    def gpu(card: Gpu, again: bool) -> Ceilings:
        found = known_gpu(card) or by_data_sheet(card.name)
        if found is None:
            raise ConfigError(_UNMEASURED)
        return found

    def memory() -> MemoryCeiling:
        found = known_memory()
        if found is None:
            raise Unmeasured(_UNMEASURED)
        return found

    machine = MachineCeilings(url, given, devices, list_gpus=list_gpus, measure_gpu=gpu, measure_memory=memory)
    ceilings: Ceilings | str | None
    try:
        named = None if card_name is None else by_data_sheet(find_card(card_name, BY_RATES).name)
        ceilings = machine.of(card.get("device", "")) if named is None else named.times(devices)
    except Unmeasured as error:
        ceilings = f"No ceilings: {error}"
    return Bounds(
        costs=None if isinstance(costs, str) else costs,
        ceilings=None if isinstance(ceilings, str) else ceilings,
        devices=devices,
        on_cpu=card.get("device") == "cpu",
        slots=_number(card.get("max_num_seqs")),
        weights=card.get("weights", ""),
        missing=tuple(text for text in (costs, ceilings) if isinstance(text, str)),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _cached_config(name: str) -> Path | None:
    """Of a model that was downloaded on this machine, as servers do that are given a repository's name."""
    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:  # no repository's name
        return None
    return Path(found) if isinstance(found, str) else None


def _read_quietly(path: Path, kv_element_bytes: float) -> ModelCosts | None:
    try:
        return read_model_costs(path, kv_element_bytes)
    except (ConfigError, ModelError):  # of another family: the server's own numbers may do
        return None
