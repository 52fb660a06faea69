"""Asks the system to read a model's weights into the page cache while torch is still being imported."""

from __future__ import annotations

import os
from pathlib import Path


def read_ahead(path: str) -> list[Path]:
    """Starts reading a .gguf file, or a folder's safetensors; returns the files asked for.

    On a cold cache the disk works during the seconds that `import torch` takes; on a warm one this costs nothing.
    It is advice: where the system does not take it, the load reads as ever.
    """
    model = Path(path)
    files = [model] if model.is_file() else sorted(model.glob("*.safetensors"))
    if not hasattr(os, "posix_fadvise"):
        return []
    asked: list[Path] = []
    for file in files:
        try:
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        except OSError:
            continue
        asked.append(file)
    return asked
