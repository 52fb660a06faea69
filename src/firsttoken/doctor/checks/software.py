"""Which of firsttoken's kernels does this machine get?"""

from __future__ import annotations

from firsttoken.chips import launched_as
from firsttoken.doctor.finding import Finding
from firsttoken.machine.card_state import CardState
from firsttoken.machine.software import Software

_AREA = "software"


def check_software(software: Software, cards: tuple[CardState, ...]) -> list[Finding]:
    """Versions first; then the kernels of each card, or of the processor where there is none."""
    found = [check_versions(software)]
    if not cards:
        return [*found, check_cpu_kernels(software)]
    return [*found, check_launchers(software), *(check_card_kernels(software, card) for card in cards)]


def check_versions(software: Software) -> Finding:
    why = "The GPU's kernels are written in Triton, which comes with CUDA builds of torch."
    versions = (("Python", software.python), ("torch", software.torch), ("Triton", software.triton))
    reading = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions)
    return Finding(
        _AREA,
        "versions",
        "bad" if software.torch is None else "ok",
        reading,
        why,
        "" if software.torch else "Run `pip install firsttoken`.",
    )


def check_launchers(software: Software) -> Finding:
    why = "Triton compiles a small C program for each kernel that it starts."
    if software.triton is None:
        fix = "Run `pip install triton` (Linux), or install torch with CUDA, which brings it along."
        return Finding(_AREA, "Triton", "bad", "not installed: every op runs through torch, slowly", why, fix)
    if software.no_launchers is not None:
        return Finding(_AREA, "Triton", "bad", "cannot start its kernels", why, software.no_launchers)
    return Finding(_AREA, "Triton", "ok", "finds a C compiler and Python's headers", why)


def check_card_kernels(software: Software, card: CardState) -> Finding:
    why = "Which forms of the kernels a card runs follows from its generation; their launches are best measured on it."
    name = f"kernels, card {card.index}"
    if card.capability is None:
        return Finding(_AREA, name, "unread", "the card does not tell its compute capability", why)
    generation = f"compute capability {card.capability[0]}.{card.capability[1]}"
    if card.capability < (8, 0):
        fix = "Take a card of 2020 or later (RTX 30, A10, A100 and newer)."
        return Finding(_AREA, name, "bad", f"{generation}: the kernels are written for 8.0 and newer", why, fix)
    early = ", next kernel launched early" if card.capability >= (9, 0) else ""
    if (measured := launched_as(card.name, software.measured_cards)) is not None:
        own = measured == card.name
        on = "this card" if own else f"{measured}, which has the same chip"
        fix = "" if own else "`firsttoken kernels measure` finds this card's own."
        return Finding(_AREA, name, "ok", f"{generation}: Triton{early}, launches measured on {on}", why, fix)
    fix = "Run `firsttoken kernels measure` once, with nothing else on the card."
    return Finding(_AREA, name, "warn", f"{generation}: Triton{early}, launches of the default kind", why, fix)


def check_cpu_kernels(software: Software) -> Finding:
    why = "On a CPU the products run in C kernels that are compiled at the first start; without them torch is used."
    if software.c_compiler is None:
        return Finding(_AREA, "CPU kernels", "warn", "no C compiler", why, "Install gcc, or set CC to a compiler.")
    return Finding(_AREA, "CPU kernels", "ok", f"compiled by {software.c_compiler}", why)
