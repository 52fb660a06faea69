"""What docs/guides/clients.md shows for openai-python runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from tests.api.live_server import LiveServer, live_server

from firsttoken.tokenizer import Tokenizer

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def recipes(page: str) -> list[str]:
    found = re.findall(r"```python\n(.*?)```", (GUIDES / page).read_text(encoding="utf-8"), re.DOTALL)
    return [recipe for recipe in found if recipe.startswith("from openai")]


@pytest.mark.parametrize("page", ["clients.md", "clients.zh-CN.md"])
def test_the_recipes_run(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str) -> None:
    with live_server(tokenizer, served_model_names=("demo",)) as server:
        plain, scored = recipes(page)
        assert run(server, plain, tmp_path, capsys) == "Hello there.\nHello there."
        answer, scores = run(server, scored, tmp_path, capsys).splitlines()
        assert answer == "Hello there."  # of an engine that heeds no schema
        assert scores.startswith("[None, -0.5")


def run(server: LiveServer, recipe: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert "http://127.0.0.1:8000" in recipe
    script = folder / "recipe.py"
    script.write_text(recipe.replace("http://127.0.0.1:8000", server.url), encoding="utf-8")
    capsys.readouterr()
    runpy.run_path(str(script))
    return capsys.readouterr().out.rstrip("\n")
