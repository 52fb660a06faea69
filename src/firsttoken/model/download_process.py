"""A hub's download in a process of its own, so that Ctrl-C ends it at once.

The hubs' packages fetch in threads and end only when each has its whole file: gigabytes later. A killed process leaves
its partial files, from which the next one goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from firsttoken.errors import DownloadError


def download_apart(hub: str, repo: str, revision: str | None, names: Sequence[str], cache: Path | None) -> str:
    """Runs the hub's `download` apart and returns the folder. Raises DownloadError."""
    where = None if cache is None else str(cache)
    task = json.dumps({"hub": hub, "repo": repo, "revision": revision, "names": list(names), "cache": where})
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "firsttoken.model.download_process",
        ],  # -P: nothing in this folder shadows a module
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the terminal's Ctrl-C is for us alone; we pass it on
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            process.stdin.write(task + "\n")
            process.stdin.flush()
            lines = process.stdout.readlines()
        except BrokenPipeError:  # it died at once
            lines = []
        finally:
            process.kill()
            process.wait()
    return _result(lines, repo)


def _result(lines: Sequence[str], repo: str) -> str:
    """The last line is the result; packages may print before it."""
    answer = {}
    if lines and lines[-1].startswith("{"):
        answer = json.loads(lines[-1])
    if "folder" in answer:
        return str(answer["folder"])
    raise DownloadError(answer.get("error") or f"The download of {repo} ended without a result; try again.")


def main() -> None:
    """The other side: one task from stdin, one result to stdout."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    from firsttoken.model.hub import hubs

    cache = None if task["cache"] is None else Path(task["cache"])
    try:
        answer = {"folder": str(hubs()[task["hub"]].download(task["repo"], task["revision"], task["names"], cache))}
    except DownloadError as error:
        answer = {"error": str(error)}
    print("\n" + json.dumps(answer), flush=True)


def _end_with_the_parent() -> None:
    """The pipe ends when whoever started us is gone, however it went."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
