"""What flags of one launch mean together, and with what surrounds it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firsttoken.doctor.lint import container_checks
from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Edit, Finding
from firsttoken.doctor.lint.launch import Launch, Option
from firsttoken.doctor.lint.rules import quantity

_SERVE = "https://docs.vllm.ai/en/latest/cli/serve/"
_PARALLEL = ("--tensor-parallel-size", "--tp-size"), ("--pipeline-parallel-size", "--pp-size")


def findings(case: Case) -> Iterator[Finding]:
    """Contradictions between flags, and between flags and their surroundings."""
    launch = case.launch
    assert launch is not None
    if case.program in ("vllm", "sglang"):
        yield from _model(case, launch)
        yield from _cards(case, launch)
    if case.program == "vllm":
        yield from _batch(case, launch)
    if case.container is not None and case.program in ("vllm", "sglang"):
        yield from container_checks.findings(case, launch)


def own_command(case: Case) -> Iterator[Finding]:
    """A command that firsttoken does not have."""
    if case.trouble:
        near = re.search(r"nearest is (\w+)", case.trouble)
        position = case.trouble_at
        edits = (Edit(position, position + 1, (near[1],)),) if near else ()
        what = f"firsttoken has no command {' '.join(case.words[1 : position + 1])}."
        source = "docs/reference/cli.md"
        yield case.finding("no-such-command", "error", what, case.trouble, edits, source=source)


def _model(case: Case, launch: Launch) -> Iterator[Finding]:
    """A launch without a model, or with two."""
    named = launch.given("--model") or launch.given("--model-path")
    first = launch.positional[0] if launch.positional else None
    if case.program == "vllm" and named and first and case.container is None:
        what = f"Two models are named: {first[1]} and {named.value}."
        yield case.finding("two-models", "error", what, "One process serves one model.", (_drop(named),), source=_SERVE)
    told = launch.given("--config") or launch.given("--help") or _gone_model(launch)
    if named is None and first is None and not told:
        what = "No model is named."
        why = "vLLM then serves its example model, Qwen/Qwen3-0.6B." if case.program == "vllm" else "SGLang stops."
        edit = Edit(launch.start, launch.start, ("Qwen/Qwen3-4B-Instruct-2507",))
        if case.program == "sglang":
            edit = Edit(launch.start, launch.start, ("--model-path", "Qwen/Qwen3-4B-Instruct-2507"))
        yield case.finding("no-model", "error", what, why, (edit,), source=_SERVE)


def _gone_model(launch: Launch) -> bool:
    """Whether the model is given by a flag that is another program's; that is told of already."""
    return any(option.written in ("--model-path", "--model-id", "--model-name-or-path") for option in launch.options)


def _cards(case: Case, launch: Launch) -> Iterator[Finding]:
    """Cards that the flags want against those that the process may see."""
    visible = case.environment.get("CUDA_VISIBLE_DEVICES", "")
    count = len([part for part in visible.split(",") if part.strip()]) if re.fullmatch(r"[\d, ]+", visible) else 0
    wanted, options = 1, []
    for names in _PARALLEL:
        for name in names:
            size = quantity(launch.text(name) or "") if name in launch.table.flags else None
            option = launch.given(name)
            if size and option and option not in options:
                wanted *= int(size)
                options.append(option)
    if count and wanted > count:
        what = f"{wanted} cards are asked for and CUDA_VISIBLE_DEVICES={visible} shows {count}."
        why = "The server stops when a worker finds no card."
        edits = tuple(Edit(option.start, option.end, (option.written, str(count))) for option in options[:1])
        edits += tuple(_drop(option) for option in options[1:])
        yield case.finding("more-cards-than-visible", "error", what, why, edits, source=_SERVE)


def _batch(case: Case, launch: Launch) -> Iterator[Finding]:
    """Sizes of vLLM's scheduler that exclude each other."""
    tokens, seqs = launch.given("--max-num-batched-tokens"), launch.given("--max-num-seqs")
    context = launch.given("--max-model-len")
    most, rows, length = _size(tokens), _size(seqs), _size(context)
    if tokens and most and rows and most < rows:
        what = f"--max-num-batched-tokens {tokens.value} is less than --max-num-seqs {seqs.value if seqs else ''}."
        why = "Each running sequence needs one token of a step, so vLLM stops."
        edit = Edit(tokens.start, tokens.end, (tokens.written, str(max(int(rows), 2048))))
        yield case.finding("batch-below-sequences", "error", what, why, (edit,), source=_SERVE)
    chunks = launch.given("--enable-chunked-prefill")
    if tokens and most and length and chunks and chunks.off and most < length:
        what = f"Without chunks a prompt of {int(length)} tokens cannot pass --max-num-batched-tokens {tokens.value}."
        why = "vLLM stops: a whole prompt has to fit into one step then."
        yield case.finding("batch-below-context", "error", what, why, (_drop(chunks),), source=_SERVE)
    blocks, block = _size(launch.given("--num-gpu-blocks-override")), _size(launch.given("--block-size")) or 16
    if blocks and length and context and blocks * block < length:
        what = f"{int(blocks)} blocks of {int(block)} hold fewer tokens than --max-model-len {context.value}."
        why = "One sequence of full length has to fit, so vLLM stops."
        override = launch.given("--num-gpu-blocks-override")
        assert override is not None
        yield case.finding("blocks-below-context", "error", what, why, (_drop(override),), source=_SERVE)


def _size(option: Option | None) -> float | None:
    return quantity(option.value) if option and option.value else None


def _drop(option: Option) -> Edit:
    return Edit(option.start, option.end)
