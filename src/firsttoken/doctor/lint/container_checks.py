"""A server in a container: what docker is told, and what it is not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Edit, Finding
from firsttoken.doctor.lint.launch import Launch
from firsttoken.doctor.lint.ports import port_of

_SOURCE = "https://docs.vllm.ai/en/latest/deployment/docker/"
_PARALLEL = ("--tensor-parallel-size", "--tp-size", "--pipeline-parallel-size", "--pp-size")


def findings(case: Case, launch: Launch) -> Iterator[Finding]:
    """What docker is not told. Only a `run` says it; an image's default entry point listens on the usual port."""
    container = case.container
    assert container is not None
    if not container.entry and not container.options:
        return
    gpus = container.values("--gpus", "--device", "--runtime")
    if not gpus and "cpu" not in container.image and case.words and _is_run(case):
        what = "The container gets no card: --gpus all is missing."
        why = "Without it docker shows none, and the server finds no device."
        yield case.finding("container-without-card", "error", what, why, outer=("--gpus", "all"), source=_SOURCE)
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
            yield case.finding("port-not-published", "error", what, why, edits, source=_SOURCE)
    if not container.values("-p", "--publish", "-P", "--publish-all") and "host" not in network and _is_run(case):
        what = "No port is published, so nobody outside the container reaches the server."
        why = "-p 8000:8000 publishes it; --network host needs none."
        port = str(listening or 8000)
        yield case.finding("no-port-published", "warn", what, why, outer=("-p", f"{port}:{port}"), source=_SOURCE)
    if case.program == "sglang" and launch.given("--host") is None and "host" not in network:
        what = "SGLang listens on 127.0.0.1, which cannot be reached from outside the container."
        why = "A published port arrives at the container's own address."
        edit = Edit(len(launch.words), len(launch.words), ("--host", "0.0.0.0"))
        yield case.finding("container-default-host", "error", what, why, (edit,), source=_SOURCE)
    several = any(launch.given(name) for name in _PARALLEL)
    if several and _is_run(case) and not container.values("--ipc", "--shm-size"):
        what = "Workers of several cards share memory, and docker gives a container 64 MB of it."
        why = 'NCCL stops with a bus error or "no space left".'
        yield case.finding("container-shared-memory", "error", what, why, outer=("--ipc=host",), source=_SOURCE)


def _is_run(case: Case) -> bool:
    return case.container is not None and bool(re.search(r"\b(docker|podman|nerdctl) (run|create)\b", case.raw))
