"""How a card is set up: what it may draw, remember and share."""

from __future__ import annotations

from firsttoken.doctor.finding import Finding, Verdict
from firsttoken.doctor.quantities import count, gibibytes
from firsttoken.machine.card_state import CardProcess, CardState

_UNSEEN = 2 * 1024**3  # bytes: the driver itself keeps up to some hundred MiB on a large card
_FULL = 0.5  # of the memory


def area_of(card: CardState) -> str:
    """The heading of a card's findings."""
    return f"card {card.index}: {card.name}"


def check_card(card: CardState) -> list[Finding]:
    """What can be judged of a card at rest."""
    return [
        check_persistence(card),
        check_power(card),
        check_ecc(card),
        check_memory_faults(card),
        check_processes(card),
        check_memory(card),
        check_sharing(card),
    ]


def check_persistence(card: CardState) -> Finding:
    why = (
        "Without persistence the driver gives the card up when the last program ends: the next start waits for it, "
        "and power limit and locked clocks are forgotten."
    )
    if card.persistence is None:
        return _unread(card, "persistence", why)
    if card.persistence:
        return Finding(area_of(card), "persistence", "ok", "on", why)
    fix = f"Run `firsttoken doctor apply`, or `sudo nvidia-smi -i {card.index} -pm 1`."
    return Finding(area_of(card), "persistence", "warn", "off", why, fix)


def check_power(card: CardState) -> Finding:
    why = (
        "A lower limit lowers the clocks of dense work (prompts, large batches) first; decoding, which waits for "
        "memory, loses little until the limit is far down."
    )
    limit, default = card.power_limit_w, card.power_default_w
    if limit is None or default is None:
        return _unread(card, "power limit", why)
    span = "" if card.power_most_w is None else f", of {card.power_least_w:.0f} to {card.power_most_w:.0f} W possible"
    reading = f"{limit:.0f} W, default {default:.0f} W{span}"
    if limit >= 0.99 * default:
        return Finding(area_of(card), "power limit", "ok", reading, why)
    fix = f"Unless it is meant: `firsttoken doctor apply`, or `sudo nvidia-smi -i {card.index} -pl {default:.0f}`."
    verdict: Verdict = "bad" if limit < 0.6 * default else "warn"
    return Finding(area_of(card), "power limit", verdict, reading, why, fix)


def check_ecc(card: CardState) -> Finding:
    why = (
        "ECC finds flipped bits, which else change weights in silence. HBM cards lose nothing to it; on GDDR cards it "
        "takes memory and bandwidth."
    )
    if card.ecc is None:
        return Finding(area_of(card), "ECC", "unread", "this card has none, or does not tell", why)
    reading = "on" if card.ecc else "off"
    if card.ecc_pending is not None and card.ecc_pending != card.ecc:
        reading += f", {'on' if card.ecc_pending else 'off'} after the next restart"
    if card.ecc or not _is_hbm(card):
        return Finding(area_of(card), "ECC", "ok", reading, why)
    fix = f"Run `sudo nvidia-smi -i {card.index} -e 1` and restart the machine when it suits."
    return Finding(area_of(card), "ECC", "warn", reading, why, fix)


def check_memory_faults(card: CardState) -> Finding:
    why = (
        "Uncorrected errors end the program that meets them or spoil its answers; failed remapping means a dying card."
    )
    if card.uncorrected_errors is None and card.remap_failed is None:
        return _unread(card, "memory faults", why)
    area, errors = area_of(card), card.uncorrected_errors or 0
    remapped = f", {count(card.rows_remapped, 'row')} remapped" if card.rows_remapped else ""
    if card.remap_failed:
        return Finding(area, "memory faults", "bad", "a row could not be remapped", why, "Have the card replaced.")
    if card.remap_pending or errors:
        reading = f"{count(errors, 'uncorrected error')} since the driver was loaded{remapped}"
        if card.remap_pending:
            reading += ", a remapping waits for a restart"
        return Finding(
            area,
            "memory faults",
            "bad",
            reading,
            why,
            "Drain the machine and restart it; if errors return, have the card replaced.",
        )
    return Finding(area, "memory faults", "ok", f"no uncorrected errors since the driver was loaded{remapped}", why)


def check_processes(card: CardState) -> Finding:
    why = "Two programs on a card take turns: each step waits for the other's, and the KV cache gets what is left."
    if card.processes is None:
        return _unread(card, "other processes", why)
    if not card.processes:
        return Finding(area_of(card), "other processes", "ok", "none", why)
    named = "; ".join(_process(one) for one in card.processes)
    fix = "If it is the server that you measure, all is well; else stop it, or give each program its own card."
    return Finding(area_of(card), "other processes", "warn", named, why, fix)


def check_memory(card: CardState) -> Finding:
    why = "Weights, KV cache and graphs must fit into what is free; what is left over after the weights is context."
    if card.memory_total is None or card.memory_used is None:
        return _unread(card, "memory", why)
    free = card.memory_total - card.memory_used
    reading = f"{gibibytes(free)} free of {gibibytes(card.memory_total)}"
    known = sum(one.memory or 0 for one in card.processes or ())
    if not card.processes and card.memory_used > known + _UNSEEN:
        reading += f"; {gibibytes(card.memory_used)} are taken by what cannot be seen from here"
        fix = "Look on the host itself (`nvidia-smi`): another container, another user or a dead program holds it."
        return Finding(area_of(card), "memory", "warn", reading, why, fix)
    if free < _FULL * card.memory_total:
        fix = (
            "If it is the server that you measure, all is well; else stop what uses the card (above), or plan with the "
            "rest: `serve --gpu-memory-utilization`."
        )
        return Finding(area_of(card), "memory", "warn", reading, why, fix)
    return Finding(area_of(card), "memory", "ok", reading, why)


def check_sharing(card: CardState) -> Finding:
    why = "In MIG mode a program gets a slice, with its share of memory and bandwidth; other modes limit who may enter."
    area = area_of(card)
    if card.mig is None and card.compute_mode is None:
        return _unread(card, "sharing", why)
    if card.compute_mode == "prohibited":
        fix = f"Run `sudo nvidia-smi -i {card.index} -c DEFAULT`."
        return Finding(area, "sharing", "bad", "compute mode prohibited: no program may use the card", why, fix)
    if card.mig:
        fix = "If the whole card is wanted, its administrator can turn MIG off while nothing runs on it."
        return Finding(area, "sharing", "warn", "MIG is on: rates are those of a slice, not of the card", why, fix)
    mode = "" if card.compute_mode is None else f"compute mode {card.compute_mode}"
    mig = "" if card.mig is None else "MIG off"
    return Finding(area, "sharing", "ok", ", ".join(part for part in (mig, mode) if part), why)


def _is_hbm(card: CardState) -> bool:
    """By the memory clock: HBM's stays far below that of GDDR, which starts at 5000 MHz."""
    return card.memory_clock_max_mhz is not None and card.memory_clock_max_mhz < 5000


def _process(one: CardProcess) -> str:
    name = one.name or "outside this container"
    memory = "" if one.memory is None else f", {gibibytes(one.memory)}"
    return f"process {one.pid} ({name}{memory})"


def _unread(card: CardState, check: str, why: str) -> Finding:
    return Finding(area_of(card), check, "unread", "the card or its driver does not tell", why)
