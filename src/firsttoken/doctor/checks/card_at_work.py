"""What a card did under a short load: clocks, what held them back, heat, and its link."""

from __future__ import annotations

from firsttoken.doctor.checks.card import area_of
from firsttoken.doctor.finding import Finding, Verdict
from firsttoken.doctor.readings import CardReadings
from firsttoken.machine.card_under_load import UnderLoad

_FEW = 0.1  # of the samples: a reason seen so rarely is a moment, no state
_LOW = 0.75  # of the highest clock: dense products at a card's own power limit stay above it
_NEAR = 3  # degrees below the slowdown
_LINK_FIX = (
    "Seat the card again, use the slot that the board's manual names for x16, and look at the slot's settings in the "
    "firmware (bifurcation, generation); risers and second slots are the usual cause."
)


def check_at_work(card: CardReadings) -> list[Finding]:
    """Each says why it was not read where the card was not put to work."""
    return [check_clocks(card), check_memory_clock(card), check_limits(card), check_heat(card), check_link(card)]


def check_clocks(card: CardReadings) -> Finding:
    why = "Prompts and large batches run at the pace of the SM clock: what it loses, they lose."
    load, highest = card.under_load, card.state.sm_clock_max_mhz
    if load is None or load.sm_clock_mhz is None or not highest:
        return _unread(card, "SM clock", why)
    share = load.sm_clock_mhz / highest
    reading = f"{load.sm_clock_mhz:.0f} MHz {_when(load)}, {share:.0%} of {highest} MHz"
    if share >= _LOW:
        return Finding(area_of(card.state), "SM clock", "ok", reading, why)
    if _lasting(card):
        fix = "See `held back` below: that is what keeps the clock down."
    else:
        fix = (
            "No reason is given, so it is probably locked: `firsttoken doctor restore` if doctor locked it, else "
            f"`sudo nvidia-smi -i {card.state.index} -rgc`, which gives the clocks back to the driver."
        )
    return Finding(area_of(card.state), "SM clock", "bad" if share < 0.5 else "warn", reading, why, fix)


def check_memory_clock(card: CardReadings) -> Finding:
    why = "Decoding reads every weight for each token: tokens a second follow the memory clock one to one."
    load, highest = card.under_load, card.state.memory_clock_max_mhz
    if load is None or load.memory_clock_mhz is None or not highest:
        return _unread(card, "memory clock", why)
    share = load.memory_clock_mhz / highest
    reading = f"{load.memory_clock_mhz:.0f} MHz {_when(load)}, {share:.0%} of {highest} MHz"
    if share >= 0.9:  # GeForce cards take a step down while CUDA runs
        return Finding(area_of(card.state), "memory clock", "ok", reading, why)
    fix = f"A lock (`-lmc`) is the usual cause: `sudo nvidia-smi -i {card.state.index} -rmc` takes it off."
    return Finding(area_of(card.state), "memory clock", "bad", reading, why, fix)


def check_limits(card: CardReadings) -> Finding:
    why = "The card itself says what keeps its clocks down; percentages of use cannot tell this."
    load = card.under_load
    if load is None:
        return _unread(card, "held back", why)
    lasting = _lasting(card)
    if not lasting:
        return Finding(area_of(card.state), "held back", "ok", f"by nothing, in {load.samples} readings", why)
    verdict, fix = _judge(card, [text for text, _ in lasting])
    power = "" if load.power_w is None else f"; {load.power_w:.0f} W drawn at most"
    if verdict == "ok" and card.state.power_limit_w is not None:
        power += f" of its own {card.state.power_limit_w:.0f}, as dense products do"
    reading = ", ".join(f"by {text} in {share:.0%} of the readings" for text, share in lasting) + power
    return Finding(area_of(card.state), "held back", verdict, reading, why, fix)


def check_heat(card: CardReadings) -> Finding:
    why = (
        "At the slowdown temperature the card lowers its clocks; two seconds of load only show one that is hot already."
    )
    load, limit = card.under_load, card.state.slowdown_c
    if load is None or load.temperature_c is None:
        return _unread(card, "temperature", why)
    reading = f"{load.temperature_c:.0f} °C {_when(load)}" + ("" if limit is None else f", slows down at {limit} °C")
    if limit is not None and load.temperature_c >= limit - _NEAR:
        fix = "Clean fans and filters, give the case more air, or lower the power limit a little."
        return Finding(area_of(card.state), "temperature", "bad", reading, why, fix)
    return Finding(area_of(card.state), "temperature", "ok", reading, why)


def check_link(card: CardReadings) -> Finding:
    why = (
        "The link carries weights at the start, not tokens: a narrow one makes starts slow and hardly touches decoding."
    )
    load, state = card.under_load, card.state
    if load is None or load.link_width is None or load.link_generation is None or not state.link_width_max:
        return _unread(card, "PCIe link", why)
    generation = state.link_generation_max or load.link_generation
    reading = f"generation {load.link_generation}, {load.link_width} lanes {_when(load)}"
    best = f"generation {generation}, {state.link_width_max} lanes"
    if load.link_width < state.link_width_max or load.link_generation < generation:
        share = load.link_width / state.link_width_max * 2.0 ** (load.link_generation - generation)
        verdict: Verdict = "bad" if share <= 0.25 else "warn"
        return Finding(area_of(state), "PCIe link", verdict, f"{reading}; {best} are possible here", why, _LINK_FIX)
    if state.link_generation_card is not None and state.link_generation_card > generation:
        reading += f" (the card itself could do generation {state.link_generation_card}, this slot does not)"
    return Finding(area_of(state), "PCIe link", "ok", reading, why)


def _when(load: UnderLoad) -> str:
    return "under another program's load" if load.by_others else "under load"


def _lasting(card: CardReadings) -> list[tuple[str, float]]:
    load = card.under_load
    return [] if load is None else [(text, share) for text, share in load.held_back if share >= _FEW]


def _judge(card: CardReadings, reasons: list[str]) -> tuple[Verdict, str]:
    """A power cap at the card's own limit is how dense products run; heat and hardware are faults."""
    if "power brake" in reasons:
        return (
            "bad",
            "The supply asks the card to slow down: look at the power cables, the supply and the rack's limit.",
        )
    if any("thermal" in text for text in reasons):
        return "bad", "The card is too hot: clean fans and filters, give the case more air."
    if "hardware slowdown" in reasons:
        return "bad", "The card protects itself from heat or a weak supply: look at cooling and at the power cables."
    clock = None if card.under_load is None else card.under_load.sm_clock_mhz
    highest = card.state.sm_clock_max_mhz
    limit, default = card.state.power_limit_w, card.state.power_default_w
    lowered = limit is not None and default is not None and limit < 0.99 * default
    if not lowered and (clock is None or not highest or clock >= _LOW * highest):
        return "ok", ""
    return "warn", "See `power limit`: the card has less power than it wants for this work."


def _unread(card: CardReadings, check: str, why: str) -> Finding:
    if card.under_load is not None:
        return Finding(area_of(card.state), check, "unread", "the card or its driver does not tell", why)
    reading = card.why_no_load or "the card was not put to work"
    return Finding(area_of(card.state), check, "unread", reading, why)
