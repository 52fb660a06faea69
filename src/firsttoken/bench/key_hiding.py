"""Commands are written into results that people pass on, so API keys in them are hidden first."""

from __future__ import annotations

import re

_KEY = re.compile(r"""((?:--api-key|[A-Z_]*API_KEY|[A-Z_]*TOKEN)(?:=|\s+))("[^"]*"|'[^']*'|\S+)""")


def hide_keys(command: str) -> str:
    """The command with `…` in place of what follows --api-key, or is given to a variable such as OPENAI_API_KEY."""
    return _KEY.sub(r"\1…", command)
