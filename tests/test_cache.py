"""Where files are kept: the user's word first, and one sentence for a user who has no home."""

from __future__ import annotations

from pathlib import Path

import pytest

from firsttoken.cache import cache_folder
from firsttoken.errors import ConfigError


def test_the_cache_follows_its_variables() -> None:
    assert cache_folder({}) == Path.home() / ".cache" / "firsttoken"
    assert cache_folder({"XDG_CACHE_HOME": "/big"}) == Path("/big/firsttoken")
    assert cache_folder({"XDG_CACHE_HOME": "/big", "FIRSTTOKEN_CACHE": "/own"}) == Path("/own")
    assert cache_folder({"FIRSTTOKEN_CACHE": "~/own"}) == Path.home() / "own"


def test_a_home_that_nobody_knows_is_told_with_the_variable_to_set() -> None:
    with pytest.raises(ConfigError, match="set FIRSTTOKEN_CACHE"):
        cache_folder({"FIRSTTOKEN_CACHE": "~nobody-of-this-name/cache"})
