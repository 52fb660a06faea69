"""An API worker without HTTP, for tests of the supervisor. Its served model name chooses what it does."""

from __future__ import annotations

import os
import signal
import sys
import time

from firsttoken.child import Parent
from firsttoken.config import ServerConfig


def main() -> int:
    status = int(sys.argv[2])
    [kind] = Parent().config(ServerConfig).served_model_names
    if kind == "bad template":
        os.write(status, b"failed The template is broken; choose another.\n")
        return 1
    if kind == "crash":
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
