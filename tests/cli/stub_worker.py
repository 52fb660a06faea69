"""An API worker without HTTP, for tests of the supervisor. Its served model name chooses what it does."""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

from firsttoken.child import Parent
from firsttoken.config import ServerConfig


def _start() -> int:
    """How many workers of this server have started before."""
    for i in count():
        try:
            (Path(os.environ["TMPDIR"]) / f"start-{i}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return i
    raise AssertionError


def main() -> int:
    status = int(sys.argv[2])
    [kind] = Parent().config(ServerConfig).served_model_names
    if kind == "bad template":
        os.write(status, b"failed The template is broken; choose another.\n")
        return 1
    if kind == "crash":
        os._exit(7)
    if kind.startswith("stillborn "):
        _, initial, number = kind.split()
        if int(initial) <= _start() < int(initial) + int(number):
            os._exit(7)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.write(status, b"ready\n")
    while True:
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
