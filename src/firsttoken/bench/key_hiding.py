"""Commands are written into results that people pass on, so API keys in them are hidden first."""

from __future__ import annotations

import re

_FLAG = r"--(?:[a-z]+[-_])*(?:api[-_]key|token|password|secret)"  # --api-key, --api_key, --admin-api-key, --hf-token
_VARIABLE = r"\b[A-Z_]*(?:API_KEY|TOKEN|PASSWORD|SECRET)"
_KEY = re.compile(rf"""((?:{_FLAG}|{_VARIABLE})(?:=|\s+)|\bBearer\s+)("[^"]*"|'[^']*'|[^\s"']+)""")


def hide_keys(command: str) -> str:
    """The command with `…` in place of what follows flags such as --api-key and variables such as HF_TOKEN."""
    return _KEY.sub(r"\1…", command)
