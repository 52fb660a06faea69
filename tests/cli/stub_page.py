"""A chat page without Chainlit: `stub_page KIND`. Its kind chooses what it does."""

from __future__ import annotations

import signal
import socket
import sys
import threading


def main() -> None:
    kind = sys.argv[1]
    if kind == "broken":
        sys.exit("Error: The page is broken; choose another.")
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        threading.Event().wait(60)


if __name__ == "__main__":
    main()
