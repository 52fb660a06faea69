"""Which cards have measured kernel launches, as the files say: the kernels themselves are not imported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from firsttoken.cache import cache_folder
from firsttoken.errors import ConfigError


def table_folders() -> list[Path]:
    """Those that come with firsttoken, and where `firsttoken kernels measure` writes."""
    found = [Path(str(files("firsttoken"))) / "kernels" / "gpu" / "tables"]
    try:
        return [*found, cache_folder() / "launch"]
    except ConfigError:
        return found  # a user without a home folder has measured none


def measured_cards(folders: Sequence[Path] | None = None) -> tuple[str, ...]:
    """The drivers' names of these cards. A file that cannot be read counts for none."""
    found = set()
    for folder in table_folders() if folders is None else folders:
        for path in sorted(folder.glob("*.json")):
            try:
                found.add(str(json.loads(path.read_text())["card"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return tuple(sorted(found))
