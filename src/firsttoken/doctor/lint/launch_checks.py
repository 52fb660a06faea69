"""What flags of one launch mean together, and what several launches do to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Edit, Finding, Level
from firsttoken.doctor.lint.launch import Launch, Option
from firsttoken.doctor.lint.rules import quantity

if TYPE_CHECKING:
    from firsttoken.doctor.lint.linter import Checked

_PORTS = {"vllm": 8000, "firsttoken": 8000, "sglang": 30000, "chainlit": 8000}
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
        yield from _container(case, launch)


def own_command(case: Case) -> Iterator[Finding]:
    """A command that firsttoken does not have."""
    if case.trouble:
        near = re.search(r"nearest is (\w+)", case.trouble)
        position = case.trouble_at
        edits = (Edit(position, position + 1, (near[1],)),) if near else ()
        what = f"firsttoken has no command {' '.join(case.words[1 : position + 1])}."
        source = "docs/reference/cli.md"
        yield _finding(case, "no-such-command", "error", what, case.trouble, edits, source=source)


def _model(case: Case, launch: Launch) -> Iterator[Finding]:
    """A launch without a model, or with two."""
    named = launch.given("--model") or launch.given("--model-path")
    first = launch.positional[0] if launch.positional else None
    if case.program == "vllm" and named and first and case.container is None:
        what = f"Two models are named: {first[1]} and {named.value}."
        yield _finding(case, "two-models", "error", what, "One process serves one model.", (_drop(named),))
    told = launch.given("--config") or launch.given("--help") or _gone_model(launch)
    if named is None and first is None and not told:
        what = "No model is named."
        why = "vLLM then serves its example model, Qwen/Qwen3-0.6B." if case.program == "vllm" else "SGLang stops."
        edit = Edit(launch.start, launch.start, ("Qwen/Qwen3-4B-Instruct-2507",))
        if case.program == "sglang":
            edit = Edit(launch.start, launch.start, ("--model-path", "Qwen/Qwen3-4B-Instruct-2507"))
        yield _finding(case, "no-model", "error", what, why, (edit,))


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
        yield _finding(case, "more-cards-than-visible", "error", what, why, edits)


def _batch(case: Case, launch: Launch) -> Iterator[Finding]:
    """Sizes of vLLM's scheduler that exclude each other."""
    tokens, seqs = launch.given("--max-num-batched-tokens"), launch.given("--max-num-seqs")
    context = launch.given("--max-model-len")
    most, rows, length = _size(tokens), _size(seqs), _size(context)
    if tokens and most and rows and most < rows:
        what = f"--max-num-batched-tokens {tokens.value} is less than --max-num-seqs {seqs.value if seqs else ''}."
        why = "Each running sequence needs one token of a step, so vLLM stops."
        edit = Edit(tokens.start, tokens.end, (tokens.written, str(max(int(rows), 2048))))
        yield _finding(case, "batch-below-sequences", "error", what, why, (edit,))
    chunks = launch.given("--enable-chunked-prefill")
    if tokens and most and length and chunks and chunks.off and most < length:
        what = f"Without chunks a prompt of {int(length)} tokens cannot pass --max-num-batched-tokens {tokens.value}."
        why = "vLLM stops: a whole prompt has to fit into one step then."
        yield _finding(case, "batch-below-context", "error", what, why, (_drop(chunks),))
    blocks, block = _size(launch.given("--num-gpu-blocks-override")), _size(launch.given("--block-size")) or 16
    if blocks and length and context and blocks * block < length:
        what = f"{int(blocks)} blocks of {int(block)} hold fewer tokens than --max-model-len {context.value}."
        why = "One sequence of full length has to fit, so vLLM stops."
        override = launch.given("--num-gpu-blocks-override")
        assert override is not None
        yield _finding(case, "blocks-below-context", "error", what, why, (_drop(override),))


def _container(case: Case, launch: Launch) -> Iterator[Finding]:
    """What docker is not told. Only a `run` says it; an image's default entry point listens on the usual port."""
    container = case.container
    assert container is not None
    if not container.entry and not container.options:
        return
    gpus = container.values("--gpus", "--device", "--runtime")
    if not gpus and "cpu" not in container.image and case.words and _is_run(case):
        what = "The container gets no card: --gpus all is missing."
        why = "Without it docker shows none, and the server finds no device."
        yield _finding(case, "container-without-card", "error", what, why, (), source=_DOCKER, outer=("--gpus", "all"))
    listening = port_of(case)
    network = container.values("--network", "--net")
    for value in container.values("-p", "--publish"):
        parts = value.split("/")[0].rsplit(":", 1)
        inside = parts[-1]
        if inside.isdigit() and listening and int(inside) != listening and "host" not in network:
            what = f"-p {value} leads to port {inside}, and the server listens on {listening}."
            why = "The part after the colon is the port inside the container."
            option = launch.given("--port")
            words = ("--port", inside)
            edits = (
                Edit(option.start, option.end, words) if option else Edit(len(launch.words), len(launch.words), words),
            )
            yield _finding(case, "port-not-published", "error", what, why, edits, source=_DOCKER)
    if not container.values("-p", "--publish", "-P", "--publish-all") and "host" not in network and _is_run(case):
        what = "No port is published, so nobody outside the container reaches the server."
        why = "-p 8000:8000 publishes it; --network host needs none."
        port = str(listening or 8000)
        yield _finding(case, "no-port-published", "warn", what, why, (), source=_DOCKER, outer=("-p", f"{port}:{port}"))
    if case.program == "sglang" and launch.given("--host") is None and "host" not in network:
        what = "SGLang listens on 127.0.0.1, which cannot be reached from outside the container."
        why = "A published port arrives at the container's own address."
        edit = Edit(len(launch.words), len(launch.words), ("--host", "0.0.0.0"))
        yield _finding(case, "container-default-host", "error", what, why, (edit,), source=_DOCKER)
    several = any(launch.given(name) for names in _PARALLEL for name in names)
    if several and _is_run(case) and not container.values("--ipc", "--shm-size"):
        what = "Workers of several cards share memory, and docker gives a container 64 MB of it."
        why = 'NCCL stops with a bus error or "no space left".'
        yield _finding(case, "container-shared-memory", "error", what, why, (), source=_DOCKER, outer=("--ipc=host",))


_DOCKER = "https://docs.vllm.ai/en/latest/deployment/docker/"


def _is_run(case: Case) -> bool:
    return case.container is not None and bool(re.search(r"\b(docker|podman|nerdctl) (run|create)\b", case.raw))


def port_of(case: Case) -> int | None:
    """Where a server will listen; None where a variable says it, or nothing is served."""
    if case.launch is None or case.program not in _PORTS:
        return None
    if case.program == "firsttoken" and case.words[1:2] != ["serve"]:
        return None
    option = case.launch.given("--port")
    if option is None:
        return _PORTS[case.program]
    return int(option.value) if option.value and option.value.isdigit() else None


def ports(found: Sequence[Checked]) -> None:
    """Adds a finding to the second of two servers on one port.

    They run at once where the first was sent to the background, or where they are different programs; the same program
    twice in the foreground is a second try, or a page's other example.
    """
    taken: dict[int, Checked] = {}
    for checked in found:
        port = checked.port
        if checked.program == "chainlit" and "chainlit run" in checked.text:
            given = re.search(r"(?:--port|-p)[ =](\d+)", checked.text)
            port = int(given[1]) if given else 8000
        if port is None or "docker " in checked.text or "podman " in checked.text:
            continue
        first = taken.setdefault(port, checked)
        if first is checked or not (first.background or first.program != checked.program):
            continue
        free = next(number for number in range(port + 1, port + 100) if number not in taken)
        free = 8080 if checked.program == "chainlit" and 8080 not in taken else free
        what = f"Port {port} is taken by line {first.line} already ({first.program})."
        why = "The second server cannot bind it and stops; a browser or client then talks to the first."
        finding = Finding(
            rule="port-taken", level="error", what=what, why=why, line=checked.line,
            source="https://docs.chainlit.io/backend/command-line" if checked.program == "chainlit" else _SERVE,
        )  # fmt: skip
        checked.findings.insert(0, finding)
        text = checked.corrected or checked.text
        given_port = re.search(r"--port[ =]\S+", text)
        checked.corrected = text.replace(given_port[0], f"--port {free}") if given_port else f"{text} --port {free}"
        taken[free] = checked


def _size(option: Option | None) -> float | None:
    return quantity(option.value) if option and option.value else None


def _drop(option: Option) -> Edit:
    return Edit(option.start, option.end)


def _finding(
    case: Case,
    rule: str,
    level: Level,
    what: str,
    why: str,
    edits: tuple[Edit, ...],
    *,
    source: str = "",
    outer: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        rule=rule, level=level, what=what, why=why, source=source or _SERVE, line=case.line, edits=edits, outer=outer,
        whole=bool(edits or outer),
    )  # fmt: skip
