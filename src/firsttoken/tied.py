"""`python -m firsttoken.tied MODULE ARGUMENTS...`: runs a module and ends it when stdin does.

A supervisor holds the other end of a child's stdin; the kernel closes it however the supervisor dies, so that no child
is left. Standard library only: it also runs where nothing else of firsttoken's needs is installed.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def main() -> None:
    threading.Thread(target=_watch, name="parent", daemon=True).start()
    module = sys.argv[1]
    sys.argv[1:2] = []
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
