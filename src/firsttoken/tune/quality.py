"""Whether a faster server still gives the same answers: what is compared, and what it must reach."""

from __future__ import annotations

import msgspec


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """A config's answers against the baseline's."""

    passed: bool
    text: str  # one sentence: what was found, or why nothing could be
    seconds: float = 0.0
    figures: dict[str, float] = {}
