"""Fixtures that several parts' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.model.hub import resolve


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The demo model's GGUF file, fetched once and kept in the cache; FIRSTTOKEN_DEMO_FILE names another copy."""
    return resolve("demo")
