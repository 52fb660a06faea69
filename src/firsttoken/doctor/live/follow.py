"""One verdict after a while, or a view that goes on until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from firsttoken.doctor.live.diagnosis import Diagnosis
from firsttoken.doctor.live.view import shown
from firsttoken.doctor.live.watch import Watch
from firsttoken.errors import Unavailable

Sleep = Callable[[float], None]


def once(
    watch: Watch,
    seconds: float,
    interval: float,
    sleep: Sleep = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Diagnosis:
    """Of the next `seconds`, at most twice as long: a reading that the server was too busy to answer is left out.

    Raises Unavailable where nothing came of it, also where the server is started anew meanwhile.
    """
    found: Diagnosis | None = None
    trouble = Unavailable("the server started anew while it was watched: try again")
    start = clock()
    while True:
        try:
            found = watch.look()
        except Unavailable as error:
            trouble = error
        passed = clock() - start
        if passed >= seconds and (found is not None or passed >= 2 * seconds):
            break
        sleep(interval if passed >= seconds else min(interval, seconds - passed))
    if found is None:
        raise trouble
    return found


def follow(watch: Watch, head: str, console: Console, interval: float, sleep: Sleep = time.sleep) -> None:
    """Draws the newest verdict again and again; the last one stays on the screen. Ctrl-C ends it.

    A server that goes away is waited for.
    """
    found: Diagnosis | None = None
    note = "Reading…"
    with Live(Text(head, style="bold"), console=console, auto_refresh=False) as view:
        try:
            while True:
                try:
                    found = watch.look() or found
                    note = "Ctrl-C ends this. The verdict is about the load that there is now."
                except Unavailable as error:
                    note = f"{error}; still looking"
                foot = Text(note, style="dim")
                view.update(Group(foot if found is None else shown(head, found), foot), refresh=True)
                sleep(interval)
        except KeyboardInterrupt:
            return
