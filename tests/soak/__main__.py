"""`make soak`: every hard test at full length against whole servers; one line a part, and a verdict.

`--seed` chooses other random requests; `--only` names parts to run. Exit code 1 if any part failed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.soak import contract, disasters, hard_grammars, openai_suite
from tests.soak.aborter import Aborter
from tests.soak.fuzzer import Fuzzer
from tests.soak.soak_server import Watched, soak_server

Part = Callable[[int], str]  # seed -> what was seen, in words; raises where something is wrong


def random_requests(seed: int) -> str:
    with soak_server() as server:
        fuzzer = Fuzzer(server.url, seed)
        fuzzer.run(300)  # caches and allocators reach their usual size
        watched = Watched(server)
        found = fuzzer.run(2000)
        assert not found.faults, "\n".join(found.faults[:20])
        statuses = ", ".join(f"{count} x {status}" for status, count in sorted(found.statuses.items()))
        return f"{statuses}; {watched.check()}"


def aborts(seed: int) -> str:
    with soak_server() as server:
        aborter = Aborter(server.url, seed, token_ids=300)
        aborter.run(1000)
        watched = Watched(server)
        aborter.run(10_000)
        return f"10000 clients left early; {watched.check()}"


def schemathesis(seed: int) -> str:
    with soak_server() as server:
        failed = contract.run(server.url, seconds=40, seed=seed)
        watched = Watched(server)
        failed += contract.run(server.url, seconds=120, seed=seed + 1)
        assert not failed, "\n".join(failed)
        return f"160 s in all modes, without a failure; {watched.check()}"


def grammars(seed: int) -> str:
    with soak_server() as server:
        hard_grammars.run(server, seed, rounds=10)  # as many as are remembered
        watched = Watched(server)
        statuses, slowest, gap = hard_grammars.run(server, seed + 1, rounds=10)
        assert gap < 1, f"a plain stream waited {gap:.2f} s"
        counts = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
        times = f"the slowest {slowest:.1f} s, the longest gap beside them {gap:.2f} s"
        return f"{counts}; {times}; {watched.check(memory=60)}"


def openai_python(seed: int) -> str:
    tree = openai_suite.fetch(Path(sys.prefix) / "soak")
    names = [word for name in openai_suite.models(tree) for word in ("--served-model-name", name)]
    with soak_server(*names) as server:
        outcome = openai_suite.run(tree, server.url)
    assert not outcome.wrong, "\n".join(outcome.wrong)
    refused = "; ".join(f"{count} refused as they must be: {why}" for why, count in outcome.refused.items())
    return f"{tree.name}: {outcome.passed} passed, {outcome.skipped} skipped for want of aiohttp; {refused}"


def all_disasters(seed: int) -> str:
    each = (disasters.flood, disasters.killed_engine, disasters.killed_worker, disasters.terminated)
    with disasters.doomed_server() as doomed:
        return "; ".join(f"{disaster.__name__.replace('_', ' ')}: {disaster(doomed)}" for disaster in each)


PARTS: dict[str, Part] = {
    "random requests": random_requests,
    "aborts": aborts,
    "hard grammars": grammars,
    "schemathesis": schemathesis,
    "openai-python": openai_python,
    "disasters": all_disasters,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random requests")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run", metavar="PART")
    arguments = parser.parse_args()
    failed = 0
    start = time.monotonic()
    for name in arguments.only:
        began = time.monotonic()
        try:
            seen = PARTS[name](arguments.seed)
        except Exception as error:
            failed += 1
            traceback.print_exc()
            seen = f"{type(error).__name__}: see above"
            print("FAILED ", end="")
        else:
            print("ok     ", end="")
        print(f"{name:<16} {time.monotonic() - began:6.1f} s  {seen}", flush=True)
    verdict = f"{failed} of {len(arguments.only)} parts FAILED" if failed else f"all {len(arguments.only)} parts passed"
    print(f"soak: {verdict} in {time.monotonic() - start:.0f} s, seed {arguments.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
