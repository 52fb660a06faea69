"""Where servers listen, and two of them on one port."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Finding

if TYPE_CHECKING:
    from firsttoken.doctor.lint.linter import Checked

_PORTS = {"vllm": 8000, "firsttoken": 8000, "sglang": 30000, "chainlit": 8000}
_SOURCE = "https://docs.vllm.ai/en/latest/cli/serve/"


def port_of(case: Case) -> int | None:
    """Where a server will listen; None where a variable says it, or nothing is served."""
    if case.launch is None or case.program not in _PORTS:
        return None
    if case.program == "firsttoken" and "serve" not in case.words[:4]:
        return None
    option = case.launch.given("--port")
    if option is None:
        return _PORTS[case.program]
    return int(option.value) if option.value and option.value.isdigit() else None


def check_ports(found: Sequence[Checked]) -> None:
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
            source="https://docs.chainlit.io/backend/command-line" if checked.program == "chainlit" else _SOURCE,
        )  # fmt: skip
        checked.findings.insert(0, finding)
        text = checked.corrected or checked.text
        given_port = re.search(r"--port[ =]\S+", text)
        checked.corrected = text.replace(given_port[0], f"--port {free}") if given_port else f"{text} --port {free}"
        taken[free] = checked
