"""Does the host give a server enough of its cores, and do they run as fast as they can?"""

from __future__ import annotations

from firsttoken.doctor.finding import Finding
from firsttoken.doctor.quantities import count, tally
from firsttoken.machine.processor import Processor

_AREA = "host"
_SELF_RULED = ("intel_pstate", "amd-pstate-epp")  # the hardware chooses; "powersave" is only its default mode there
_SLOW_PREFERENCES = ("power", "balance_power")
_FEWEST = 4  # cores beside a card: engine, supervisor, an API worker, and the system


def check_processor(processor: Processor, has_card: bool) -> list[Finding]:
    """`has_card` asks for enough cores to feed a card."""
    return [
        check_cores(processor, has_card),
        check_quota(processor),
        check_governor(processor),
        check_others(processor),
        check_instructions(processor, has_card),
    ]


def check_cores(processor: Processor, has_card: bool) -> Finding:
    why = (
        "The engine's loop, HTTP and tokenising each want a core; with fewer, a card waits for the host between steps."
        if has_card
        else "Without a card the cores compute the model, and HTTP and tokenising share them."
    )
    reading = f"{count(processor.cores, 'core')} usable of {processor.logical}"
    if processor.name:
        reading += f" ({processor.name})"
    if processor.cores >= _FEWEST:
        return Finding(_AREA, "cores", "ok", reading, why)
    if processor.cores < processor.logical:
        fix = "Raise the container's CPU limit (`docker run --cpus`, the pod's `resources.limits.cpu`) or its core set."
    else:
        fix = "Take a machine with 4 cores or more, if answers to many users at once matter."
    return Finding(_AREA, "cores", "warn", reading, why, fix)


def check_quota(processor: Processor) -> Finding:
    why = (
        "A container that has used its quota stands still for the rest of the period, 100 ms by default: tokens stall."
    )
    share = processor.throttled_share
    if share is None:
        return Finding(_AREA, "CPU quota", "ok", "none", why)
    reading = f"ran out in {share:.1%} of the periods since the container's start"
    if share < 0.01:
        return Finding(_AREA, "CPU quota", "ok", reading, why)
    fix = "Raise the limit, or give whole cores instead of a quota (`docker run --cpuset-cpus`, static CPU manager)."
    return Finding(_AREA, "CPU quota", "bad" if share > 0.2 else "warn", reading, why, fix)


def check_governor(processor: Processor) -> Finding:
    why = "Between two steps the host has microseconds of work; cores that first must speed up make each step wait."
    if not processor.governors:
        return Finding(_AREA, "CPU governor", "unread", "the system does not tell, as most virtual machines", why)
    reading = f"{tally(processor.governors)}, driver {processor.scaling_driver or 'unknown'}"
    slow = [name for name in processor.preferences if name in _SLOW_PREFERENCES]
    if processor.preferences and set(processor.governors) != {"performance"}:
        reading += f", energy preference {tally(processor.preferences)}"
    fix = "Run `firsttoken doctor apply`, or `sudo cpupower frequency-set -g performance`."
    self_ruled = processor.scaling_driver in _SELF_RULED
    if not self_ruled and "powersave" in processor.governors:
        return Finding(_AREA, "CPU governor", "bad", f"{reading}: cores stay at their lowest clock", why, fix)
    if {"ondemand", "conservative"} & set(processor.governors) or (slow and "performance" not in processor.governors):
        return Finding(_AREA, "CPU governor", "warn", reading, why, fix)
    return Finding(_AREA, "CPU governor", "ok", reading, why)


def check_others(processor: Processor) -> Finding:
    why = "Programs that wait for a core now would wait beside a server too, and its streams would stutter."
    waiting = processor.waiting_percent
    if waiting is None:
        return Finding(_AREA, "CPU pressure", "unread", "this kernel does not tell", why)
    reading = f"in {waiting:.0f} % of the last 10 s some program waited for a core"
    if waiting < 20:
        return Finding(_AREA, "CPU pressure", "ok", reading, why)
    return Finding(_AREA, "CPU pressure", "warn", reading, why, "See with `top` what else runs, and stop or move it.")


def check_instructions(processor: Processor, has_card: bool) -> Finding:
    why = "The CPU's kernels are compiled for the widest instructions there are; a card does not need them."
    if not processor.instructions:
        return Finding(_AREA, "instructions", "unread", "the system does not tell", why)
    reading = ", ".join(processor.instructions)
    wide = {"avx2", "asimddp"} & set(processor.instructions)
    if has_card or wide:
        return Finding(_AREA, "instructions", "ok", reading, why)
    fix = "In a virtual machine let the guest see the host's processor (`-cpu host`); else the model runs slowly here."
    return Finding(_AREA, "instructions", "warn", f"{reading}, without AVX2", why, fix)
