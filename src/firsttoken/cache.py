"""Where firsttoken keeps what can be made or fetched again: the demo model, compiled kernels, measured ceilings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from firsttoken.errors import ConfigError

CACHE_VARIABLE = "FIRSTTOKEN_CACHE"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """FIRSTTOKEN_CACHE, or firsttoken under XDG_CACHE_HOME or ~/.cache. It may not exist yet.

    Raises ConfigError for a user without a home folder, as a container started with a bare user number has.
    """
    own, shared = environment.get(CACHE_VARIABLE), environment.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser()
        return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "firsttoken"
    except RuntimeError:
        raise ConfigError(
            f"This user has no home folder to keep files in; set {CACHE_VARIABLE} to a folder that can be written."
        ) from None
