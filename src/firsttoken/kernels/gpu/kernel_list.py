"""Which kernels something would compile, found by running it on the meta device."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import triton
from triton import knobs

from firsttoken.kernels.gpu.absent_driver import absent
from firsttoken.kernels.gpu.card_facts import CardFacts, imagined


class Wanted(msgspec.Struct, frozen=True, order=True):
    """One kernel in one form."""

    module: str
    name: str
    form: str  # Triton's own words: types, constants, options
    source: str  # Triton's hash of the kernel and of all that it calls


@contextmanager
def listed(card: CardFacts) -> Iterator[set[Wanted]]:
    """Inside, what meta tensors launch on `card` is noted instead of compiled. Not from two threads at once."""
    found: set[Wanted] = set()

    def note(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        found.add(Wanted(fn.module, fn.name, compile["specialization_data"], fn.jit_function.cache_key))
        return True  # leave it at that

    before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, note
    try:
        with imagined(card), absent(card.capability):
            yield found
    finally:
        knobs.runtime.jit_cache_hook = before


def built_mark(wanted: Iterable[Wanted], card: CardFacts) -> Path:
    """The file that says that all of these were compiled: beside them, so that who deletes them deletes it too."""
    words = msgspec.json.encode([triton.__version__, card.capability, sorted(wanted)])
    return Path(knobs.cache.dir) / f"firsttoken-{hashlib.sha256(words).hexdigest()[:32]}"
