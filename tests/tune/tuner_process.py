"""A tuner as a process: a whole session whose servers are real processes under guards, and whose figures are made up.

`python -m tests.tune.tuner_process FOLDER [--resume] [--without-servers]`. The figures follow from a run's number and
settings, so that a run measured again is as it was. Prints the outcome as its last line.
"""

from __future__ import annotations

import math
import random
import sys
import time
from pathlib import Path

from tests.tune.simulated import GOOD, plan

from firsttoken.bench.launch import LaunchedServer
from firsttoken.tune.arms import Arm, Candidate, Settings, in_order
from firsttoken.tune.disturbance import Disturbance
from firsttoken.tune.guarded import end_leftover, guarded
from firsttoken.tune.journal import Journal
from firsttoken.tune.lab import Lab, Run
from firsttoken.tune.session import Session

_SERVER = "sleep 300 & exec sleep 300"  # two processes of one group


class Servers:
    """Launches a server for each run, and looks at it for a moment."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._note = folder, folder / "server.pid"
        end_leftover(self._note)

    def __call__(self, settings: Settings, *, number: int, seed: int, limit: float | None) -> Run:
        if "--without-servers" not in sys.argv:
            self._launch()
        noise = random.Random(f"{number}/{seed}").gauss(0, 0.01)
        others = 0.5 * (number % 7 in (0, 1))  # two measurements in seven are disturbed
        disturbed = [Disturbance("cpu", "other programs used 1.0 of 2 cores", "")] if others else []
        gain = 0.08 * (settings.get("block") == 32)
        return Run(value=0.004 * math.exp(noise + others - gain), seconds=60.0, disturbed=disturbed)

    def _launch(self) -> None:
        with LaunchedServer(guarded(_SERVER, self._note), self._folder / "server.log") as server:
            with (self._folder / "groups").open("a") as file:
                file.write(f"{server.pid}\n")
            while not self._note.exists():
                server.check()
                time.sleep(0.005)


def main() -> None:
    folder, resume = Path(sys.argv[1]), "--resume" in sys.argv
    folder.mkdir(exist_ok=True)
    servers = Servers(folder)
    journal = Journal(folder / "journal.jsonl", plan(), resume=resume)
    lab = Lab(
        journal,
        servers,
        lambda baseline, settings: GOOD,
        baseline={},
        lower_is_better=True,
        budget=3 * 3600,
        seed=1,
        tell=lambda event: None,
    )
    outcome = Session(lab, [Candidate(Arm("block", 32)), Candidate(Arm("threads", 4))], seed=1).run()
    journal.close()
    verdicts = {arm.label: outcome.claims[arm].verdict for arm in in_order(outcome.claims)}
    print([arm.label for arm in in_order(outcome.kept)], verdicts, outcome.fresh)


if __name__ == "__main__":
    main()
