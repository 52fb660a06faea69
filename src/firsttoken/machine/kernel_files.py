"""The small files in which the kernel tells its state, under /proc and /sys."""

from __future__ import annotations

import re
from pathlib import Path

_PYTHON = re.compile(r"python[0-9.]*")


def read_file(path: Path) -> str | None:
    """Its text without blanks around it; None where there is none, or not for this user."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def program_name(process: Path) -> str | None:
    """What runs in `process`, a folder of /proc, in few words; None where that cannot be seen.

    An interpreter's name tells nothing, so its module, or its script and command, is added:
    "python3: firsttoken serve".
    """
    name = read_file(process / "comm")
    if name is None or not _PYTHON.fullmatch(name):
        return name
    words = [word for word in (read_file(process / "cmdline") or "").split("\0")[1:] if word]
    if "-m" in words[:-1]:
        return f"{name}: {words[words.index('-m') + 1]}"
    plain = [word for word in words if not word.startswith("-")]
    if "-c" in words or not plain:
        return name
    return " ".join([f"{name}:", Path(plain[0]).name, *(word for word in plain[1:2] if word.isalpha())])


def pressure(path: Path) -> float | None:
    """Per cent of the last ten seconds in which somebody waited, from a file of /proc/pressure."""
    for line in (read_file(path) or "").splitlines():
        kind, *pairs = line.split()
        if kind == "some":
            return float(dict(pair.split("=") for pair in pairs)["avg10"])
    return None
