"""`firsttoken fit`: what a model needs on a card, and how fast it will be there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.option_types import ByteSize, FloatRange, IntRange, TokenCount
from firsttoken.cli.serve import serve

if TYPE_CHECKING:
    from firsttoken.doctor.fit.ask import Ask, Device
    from firsttoken.doctor.fit.form import Form
    from firsttoken.machine.gpu import Gpu
    from firsttoken.machine.gpu_ceilings import Ceilings
    from firsttoken.model.config import ModelConfig

_USES = ("chat", "code", "long")


def _choices(name: str) -> tuple[str, ...]:
    """What `serve` takes for an option of its own."""
    types = [option.type for option in serve.params if option.name == name]
    return next((tuple(one.choices) for one in types if isinstance(one, click.Choice)), ("auto",))


_DTYPES, _QUANTIZATIONS, _KV_DTYPES = _choices("dtype"), _choices("quantization"), _choices("kv_cache_dtype")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model")
@click.option("--gpu", help="A card by name, such as 4090 or 'H100 SXM'.  [default: the one here, else the CPU]")
@click.option("--memory", type=ByteSize(), help="Instead of the card's own, such as 12GiB; alone: of a card unknown.")
@click.option("--context", type=TokenCount(), help="Tokens of one sequence, prompt and answer; auto is the longest.")
@click.option("--concurrency", type=IntRange(1), default=1, show_default=True, help="Sequences at once.")
@click.option("--dtype", type=click.Choice(_DTYPES), default="auto", help="As serve's.")
@click.option("--kv-cache-dtype", type=click.Choice(_KV_DTYPES), default="auto", help="As serve's.")
@click.option("--quantization", type=click.Choice(_QUANTIZATIONS), default="auto", help="As serve's.")
@click.option(
    "--gpu-memory-utilization",
    type=FloatRange(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="As serve's.",
)
@click.option("--max-num-seqs", type=IntRange(1), help="As serve's.")
@click.option("--max-num-batched-tokens", type=IntRange(1), help="As serve's.")
@click.option("--slo", metavar="LIMITS", help="ttft=500ms,tpot=20ms says whether these are met, and if not, why.")
@click.option("--use", type=click.Choice(_USES), help="Print a ready config for this use.")
@click.option(
    "--write", type=click.Path(path_type=Path, dir_okay=False), help="Write the config of --use here (.toml)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--hub", type=click.Choice(["huggingface", "modelscope"]), default="huggingface", help="As serve's.")
def fit(model: str, use: str | None, write: Path | None, slo: str | None, as_json: bool, **values: Any) -> int:
    """Say what MODEL needs on a card, what fits, and how fast it will be there; no GPU and no weights are needed.

    MODEL is what `serve` takes. Floors are what the card's memory and arithmetic allow; expected is what firsttoken
    makes of them. Exits with 0 where it fits and 1 where it does not, naming what does.
    """
    if write is not None and use is None:
        raise click.UsageError("--write writes the config of a use; add --use chat, code or long.")
    if write is not None and write.suffix != ".toml":
        raise click.UsageError("--write needs a name that ends in .toml, as `serve --config` does.")
    device = _device(values)
    config, path = _config(model, values["hub"])
    form, others = _forms(values, device, config, path)
    ask = _ask(model, config, device, form, values)
    if use is not None:
        return _profile(ask, use, others, write)
    return _answer(ask, others, slo, as_json)


def _answer(ask: Ask, others: tuple[Form, ...], slo: str | None, as_json: bool) -> int:
    from firsttoken.bench.metrics import parse_slo
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.fit import ask as asking
    from firsttoken.doctor.fit.instead import instead, roomier
    from firsttoken.doctor.fit.judge import judge
    from firsttoken.doctor.fit.page import as_json as fit_json
    from firsttoken.doctor.fit.page import print_fit, print_refusal, refusal_as_json, rows
    from firsttoken.errors import OutOfMemory

    goals = parse_slo(slo) if slo else {}
    if extra := set(goals) - {"ttft", "tpot"}:
        raise click.UsageError(f"--slo of `fit` knows ttft and tpot, not {', '.join(sorted(extra))}.")
    try:
        found = asking.fit(ask)
    except OutOfMemory as error:
        changes = instead(ask, others)
        if as_json:
            click.echo(json.dumps(refusal_as_json(ask, str(error), changes), indent=2))
        else:
            print_refusal(terminal(), ask, str(error), changes)
        return 1
    table, fewer = rows(found), roomier(found.ask, others)
    last = table[-1]  # the hardest that was asked for
    judgements = [
        judge("TTFT", last.floor.ttft, last.predicted.ttft, goals.get("ttft")),
        judge("TPOT", last.floor.tpot, last.predicted.tpot, goals.get("tpot")),
    ]
    if as_json:
        click.echo(json.dumps(fit_json(found, table, judgements, fewer), indent=2))
    else:
        print_fit(terminal(), found, table, judgements, fewer)
    return 0


def _profile(ask: Ask, use: str, others: tuple[Form, ...], write: Path | None) -> int:
    from firsttoken.doctor.fit.profiles import USES, profile

    here = Path(ask.model).expanduser()
    if here.exists():  # the file may be used from another folder
        ask = replace(ask, model=str(here.resolve()))
    text = profile(ask, USES[use], others).toml()
    if write is None:
        click.echo(text, nl=False)
        return 0
    write.write_text(text, encoding="utf-8")
    click.echo(f"Written: {write}. Run it with: firsttoken serve --config {write}")
    return 0


def _device(values: dict[str, Any]) -> Device:
    from firsttoken.doctor.fit import devices
    from firsttoken.machine.cards import find_card
    from firsttoken.machine.ceilings import memory_ceiling
    from firsttoken.machine.gpu import read_gpus
    from firsttoken.machine.host import read_host

    memory, utilization = values["memory"], values["gpu_memory_utilization"]
    if values["gpu"] is not None:
        return devices.sheet_device(find_card(values["gpu"]), utilization, memory)
    if memory is not None:
        return devices.memory_device(memory, utilization)
    if gpus := read_gpus():
        return devices.local_device(gpus[0], _known(gpus[0]), utilization)
    return devices.cpu_device(read_host(), memory_ceiling())


def _known(gpu: Gpu) -> Ceilings | None:
    from firsttoken.errors import ConfigError
    from firsttoken.machine.gpu_ceilings import known_ceilings

    try:
        return known_ceilings(gpu)
    except ConfigError:  # no home: nothing is remembered
        return None


def _config(model: str, hub: str) -> tuple[ModelConfig, Path | None]:
    """The model's config, and its path where it had to be looked at."""
    from firsttoken.doctor.fit.named import named_config
    from firsttoken.model.config import load_config
    from firsttoken.model.hub import resolve

    named = None if Path(model).expanduser().exists() else named_config(model)
    if named is not None:
        return named, None
    path = resolve(model, hub=hub, weights=False)
    return load_config(path), path


def _forms(
    values: dict[str, Any], device: Device, config: ModelConfig, path: Path | None
) -> tuple[Form, tuple[Form, ...]]:
    """The form that is asked for, and those to try where it does not fit."""
    from firsttoken.doctor.fit.form import fewer_bits, on_cpu, on_gpu, with_kv
    from firsttoken.model.gguf_header import gguf_read_bytes

    dtype, quantization = values["dtype"], values["quantization"]
    if device.on_gpu:
        form = on_gpu(dtype, quantization, config, device.capability)
    else:
        form = on_cpu(dtype, quantization)
        if path is not None and path.suffix == ".gguf" and not form.flags:
            form = replace(form, file_read=gguf_read_bytes(path), name="the file's bits, computed in float32")
    form = with_kv(form, values["kv_cache_dtype"], config, gpu=device.on_gpu)
    return form, fewer_bits(form, config, device.capability, gpu=device.on_gpu)


def _ask(model: str, config: ModelConfig, device: Device, form: Form, values: dict[str, Any]) -> Ask:
    from firsttoken.doctor.fit.ask import Ask

    return Ask(
        model=model,
        config=config,
        device=device,
        form=form,
        context=values["context"],
        concurrency=values["concurrency"],
        max_num_seqs=values["max_num_seqs"],
        max_num_batched_tokens=values["max_num_batched_tokens"],
    )
