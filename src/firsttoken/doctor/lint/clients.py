"""Requests beside the server that they go to: the model's name, and the key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Finding

if TYPE_CHECKING:
    from firsttoken.doctor.lint.linter import Checked

_LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?::(\d+))?/v1/")
_MODEL = re.compile(r'"model": *"([^"]+)"')
_SOURCE = "https://docs.vllm.ai/en/latest/serving/openai_compatible_server/"


def names_of(case: Case) -> tuple[str, ...]:
    """What clients may call the model. SGLang takes any name, so there is none to compare with."""
    launch = case.launch
    if launch is None or case.program not in ("vllm", "firsttoken"):
        return ()
    given = [value for option in launch.all("--served-model-name") for value in option.values]
    if any("$" in name for name in given):
        return ()
    if given:
        return tuple(given)
    return (launch.model,) if launch.model and case.program == "vllm" else ()


def needs_key(case: Case) -> bool:
    """Whether the server refuses requests without a key."""
    return case.launch is not None and case.program in ("vllm", "firsttoken") and case.launch.on("--api-key")


def check_requests(found: Sequence[Checked]) -> None:
    """Adds to each `curl` of a text what the server of the same text will refuse."""
    servers = {checked.port: checked for checked in found if checked.port is not None}
    for checked in found:
        place = _LOCAL.search(checked.text) if checked.program == "curl" else None
        server = servers.get(int(place[1] or 80)) if place else None
        if server is None:
            continue
        model = _MODEL.search(checked.text)
        text = checked.corrected or checked.text
        if model and server.names and model[1] not in server.names and "$" not in model[1]:
            right = server.names[0]
            what = f"The server of line {server.line} calls its model {right}, not {model[1]}."
            why = "Another name gets 404. --served-model-name is the name in the API, in place of the path."
            checked.findings.append(_finding("model-name-unknown", what, why, checked))
            checked.corrected = text = _MODEL.sub(f'"model": "{right}"', text)
        if server.needs_key and not re.search(r"(?i)authorization|--oauth2-bearer|x-api-key", checked.text):
            what = f"The server of line {server.line} wants a key, and this request has none."
            why = "It gets 401. The header is Authorization: Bearer KEY."
            checked.findings.append(_finding("request-without-key", what, why, checked))
            checked.corrected = f'{text} -H "Authorization: Bearer $API_KEY"'


def _finding(rule: str, what: str, why: str, checked: Checked) -> Finding:
    return Finding(rule=rule, level="error", what=what, why=why, source=_SOURCE, line=checked.line)
