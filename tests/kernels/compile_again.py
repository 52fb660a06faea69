"""Compiles what a start on an H200 would, and as it does: a program, as Triton decides once a process to interpret.

    python -m tests.kernels.compile_again MODEL_FOLDER MAX_NUM_SEQS MAX_NUM_BATCHED_TOKENS

Prints the kernels' names and how many files Triton's cache had before and after.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from triton import knobs

from firsttoken.cli.compiled_kernels import facts, settings_of
from firsttoken.config import EngineConfig
from firsttoken.engine.rehearsal import kernels_of, rehearse_start
from firsttoken.kernels.gpu.absent_driver import absent
from firsttoken.kernels.gpu.card_facts import imagined
from firsttoken.machine.cards import find_card


def files() -> int:
    return sum(path.is_file() for path in Path(knobs.cache.dir).rglob("*"))


def main(folder: str, seqs: int, tokens: int) -> None:
    card = find_card("h200")
    config = EngineConfig(model="tiny", path=folder, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    settings = settings_of(config, card)
    wanted = kernels_of(*settings, facts(card))
    before = files()
    with imagined(facts(card)), absent(card.capability):
        rehearse_start(*settings)  # as a launch compiles
    print(json.dumps({"names": [each.name for each in wanted], "before": before, "after": files()}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
