"""A scripted server as an engine of its own: `python -m tests.tune.served --port PORT [--max-num-seqs N]`.

64 sequences do not fit into it.
"""

from __future__ import annotations

import sys

from tests.bench.scripted_server import answer, serve_for_ever


def main() -> None:
    flags = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    if flags.get("--max-num-seqs") == "64":
        print("out of memory", flush=True)
        sys.exit(3)
    each = 0.002 if flags.get("--max-num-seqs") == "8" else 0.004
    serve_for_ever(int(flags["--port"]), lambda seen: answer(["a"] * 6, first=0.01, each=each, prompt=8))


if __name__ == "__main__":
    main()
