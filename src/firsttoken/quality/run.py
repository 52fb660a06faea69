"""A comparison: A is measured and keeps its distributions, B is held against them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from firsttoken.quality.answers import agreement
from firsttoken.quality.apart import measure_apart
from firsttoken.quality.records import Quality
from firsttoken.quality.side import Finding, Tell
from firsttoken.quality.work import CHUNK, Amount, Settings, Work
from firsttoken.version import __version__

Measure = Callable[[Work, Tell], Finding]


def compare_quality(a: Settings, b: Settings, amount: Amount, tell: Tell, measure: Measure = measure_apart) -> Quality:
    """Measures both sides, one after the other. Raises what `measure` does."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-quality-") as folder:
        file = Path(folder) / "reference.f32"
        first = measure(Work(a, amount, file, is_reference=True), lambda text: tell(f"A: {text}"))
        work = Work(b, amount, file, texts=first.texts, lengths=first.lengths)
        second = measure(work, lambda text: tell(f"B: {text}"))
    return Quality(
        version=__version__,
        created=time.time(),
        chunk=CHUNK,
        answer_tokens=amount.answer_tokens,
        a=first.side,
        b=second.side,
        floor=first.distances,
        distance=second.distances,
        floor_agreement=agreement(first.answers.company, first.answers.alone),
        agreement=agreement(second.answers.alone, first.answers.alone),
    )
