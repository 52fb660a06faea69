"""The answer of `firsttoken fit` on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from firsttoken.bench import units
from firsttoken.doctor.fit.ask import Ask, Fit
from firsttoken.doctor.fit.instead import Change
from firsttoken.doctor.fit.judge import Judgement
from firsttoken.doctor.fit.speed import Load, Speed
from firsttoken.model import cost

_CONTEXTS = (1024, 4096, 8192, 32_768, 131_072)
_QUANTISED = (
    "Quantised weights and an FP8 cache are expected as they ran on an H200 on 2026-12-02: by a card's "
    "multiprocessors, or by its memory where that takes longer."
)
_TITLES = ("at once", "tokens in + out", "TTFT: floor, expected", "TPOT: floor, expected", "tok/s: ceiling, expected")


@dataclass(frozen=True, slots=True)
class Row:
    """One load's figures."""

    load: Load
    floor: Speed
    predicted: Speed


def rows(fit: Fit) -> list[Row]:
    """One stream of several lengths of prompt, then the streams asked for; the largest load that was asked for last."""
    streams, output = fit.ask.concurrency, max(1, min(256, fit.context // 2))
    longest = max(1, fit.context - output)
    asked = [longest] if fit.ask.context is not None else []
    prompts = {min(prompt, longest) for prompt in (32, 4096, 32_768) if prompt <= longest or prompt == 32}
    loads = [Load(1, prompt, output) for prompt in sorted({*prompts, *asked})]
    if streams > 1:
        loads += [Load(streams, prompt, output) for prompt in sorted({min(512, longest), *asked})]
    times = fit.times
    return [Row(load, times.floor(load), times.predict(load)) for load in loads]


def print_fit(
    console: Console, fit: Fit, table: Sequence[Row], judgements: Sequence[Judgement], others: Sequence[Fit] = ()
) -> None:
    """The whole answer. `others` are the same in forms of fewer bits."""
    ask = fit.ask
    console.print(f"[bold]{ask.model}[/bold] on {ask.device.name}: it fits", highlight=False)
    for name, value, text in _memory_lines(fit):
        console.print(f"  {name:<16}{value:>10}  {text}", highlight=False, soft_wrap=True)
    for other in others:
        added = other.ask.form.flags.items() - ask.form.flags.items()
        flags = " ".join(f"--{flag} {value}" for flag, value in sorted(added, reverse=True))
        console.print(
            f"  {'fewer bits':<16}{other.plan.kv_tokens:>10,}  tokens of KV cache with {flags}", highlight=False
        )
    console.print()
    print_speed(console, table, fit)
    load = table[-1].load
    console.print(f"With {load.streams:,} at once, {load.prompt:,} + {load.output:,} tokens:", highlight=False)
    for judgement in judgements:
        console.print(judgement.text, highlight=False)
    console.print()
    console.print(f"  {ask.command()}", highlight=False, soft_wrap=True)


def _memory_lines(fit: Fit) -> Iterator[tuple[str, str, str]]:
    ask, plan, free = fit.ask, fit.plan, fit.ask.device.memory.free
    (seqs, tokens), on_gpu = ask.batch, ask.device.on_gpu
    parameters = cost.num_parameters(ask.config) / 1e9
    yield "weights", _gib(plan.weight_bytes), f"{parameters:.2f} B parameters, {ask.form.name}"
    yield "activations", _gib(plan.activation_bytes), f"steps of up to {tokens:,} tokens and {seqs:,} sequences"
    yield "runtime", _gib(plan.runtime_bytes), "CUDA context, libraries, graphs" if on_gpu else "Python and torch"
    kv = ask.form.kv_per_token(ask.config) / 1024
    yield "KV cache", _gib(plan.kv_bytes), f"{plan.kv_tokens:,} tokens of {kv:g} KiB"
    yield "left", _gib(free - _used(fit)), f"of {_gib(free)}{', by --gpu-memory-utilization' if on_gpu else ''}"
    yield "longest context", f"{fit.longest:,}", f"of the {ask.config.context_length:,} tokens that it is made for"
    held = ", ".join(f"{fit.sequences(context):,} of {context:,}" for context in _CONTEXTS if context <= fit.context)
    yield "at once", "", f"{held} tokens"


def print_speed(console: Console, table: Sequence[Row], fit: Fit) -> None:
    rates = fit.ask.device.rates
    if rates.read is None:
        console.print(f"Speed: not known, because {rates.origin}.")
        return
    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for title in _TITLES:
        shown.add_column(title, justify="right")
    for row in table:
        shown.add_row(
            f"{row.load.streams:,}",
            f"{row.load.prompt:,} + {row.load.output:,}",
            f"{units.seconds(row.floor.ttft)}, {units.seconds(row.predicted.ttft)}",
            f"{units.seconds(row.floor.tpot)}, {units.seconds(row.predicted.tpot)}",
            f"{units.rate(row.floor.tokens_per_s)}, {units.rate(row.predicted.tokens_per_s)}",
        )
    console.print(shown)
    if table[-1].load.streams > 1 and (wait := fit.times.first_tokens_at_once(table[-1].load)) is not None:
        load = table[-1].load
        each = f"{load.streams:,} prompts of {load.prompt:,} tokens"
        console.print(
            f"Should {each} come in the same moment, their TTFT is {units.seconds(wait)} on average.", highlight=False
        )
    console.print(f"Rates: {rates.origin}.", highlight=False)
    form = fit.ask.form
    if fit.ask.device.on_gpu and (form.product is not None or form.kv == 1):
        console.print(_QUANTISED, highlight=False)
    console.print()


def print_refusal(console: Console, ask: Ask, why: str, changes: Sequence[Change]) -> None:
    refusal = f"[bold]{ask.model}[/bold] on {ask.device.name}: it does not fit. {why}"
    console.print(refusal, highlight=False, soft_wrap=True)
    if not changes:
        console.print("Nothing near it fits either; use a larger card, or a smaller model.")
        return
    console.print("What fits instead:")
    for change in changes:
        console.print(f"  {change.text}", highlight=False)
        console.print(f"      {change.fit.ask.command()}", highlight=False, soft_wrap=True)


def as_json(
    fit: Fit, table: Sequence[Row], judgements: Sequence[Judgement], others: Sequence[Fit] = ()
) -> dict[str, Any]:
    """The same for programs."""
    ask, plan = fit.ask, fit.plan
    return {
        "fits": True,
        **_head(ask),
        "memory": {
            "total_bytes": ask.device.memory.total,
            "weight_bytes": plan.weight_bytes,
            "activation_bytes": plan.activation_bytes,
            "runtime_bytes": plan.runtime_bytes,
            "kv_bytes": plan.kv_bytes,
            "used_bytes": _used(fit),
        },
        "kv_tokens": plan.kv_tokens,
        "max_model_len": fit.context,
        "longest_context": fit.longest,
        "sequences": {str(context): fit.sequences(context) for context in _CONTEXTS if context <= fit.context},
        "fewer_bits": [{"kv_tokens": one.plan.kv_tokens, "command": one.ask.command()} for one in others],
        "speed": [asdict(row) for row in table],
        "judgements": [asdict(judgement) for judgement in judgements],
        "command": ask.command(),
    }


def refusal_as_json(ask: Ask, why: str, changes: Sequence[Change]) -> dict[str, Any]:
    instead = [{"change": change.text, "command": change.fit.ask.command()} for change in changes]
    return {"fits": False, **_head(ask), "why": why, "instead": instead}


def _head(ask: Ask) -> Mapping[str, Any]:
    rates = ask.device.rates
    return {
        "model": ask.model,
        "device": ask.device.name,
        "form": ask.form.name,
        "rates": {"read_bytes_per_s": rates.read, "product_flops_per_s": rates.product, "origin": rates.origin},
    }


def _used(fit: Fit) -> int:
    plan = fit.plan
    return plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes + plan.kv_bytes


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
