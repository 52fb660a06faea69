"""Where chats keep what nobody could make again: conversations, typed lines, the page's secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def data_folder(environment: Mapping[str, str]) -> Path:
    """firsttoken under XDG_DATA_HOME or ~/.local/share. It may not exist yet."""
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path(environment.get("HOME") or ".") / ".local" / "share") / "firsttoken"
