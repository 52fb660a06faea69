"""What the demo says beside an answer. The whole demo runs in tests/e2e."""

from __future__ import annotations

import json
import shlex

from firsttoken.chat.answer import Answer
from firsttoken.cli.demo import ABOUT, ceiling_line, curl_line
from firsttoken.machine.ceilings import MemoryCeiling

CEILING = MemoryCeiling(20e9, 2, "2026-01-31")


def test_the_ceiling_line_says_what_bounds_the_speed_and_how_near_it_came() -> None:
    answer = Answer(text="x", ttft=1.0, e2e=3.0, completion_tokens=101)
    line = ceiling_line(answer, CEILING, 100_000_000)
    assert line is not None
    assert line.startswith("ceiling 200 tok/s: memory reads 20.0 GB/s, a token 100 MB")
    assert line.endswith("25% of it")


def test_without_a_speed_or_a_size_there_is_no_ceiling_line() -> None:
    assert ceiling_line(Answer(text="x", ttft=1.0, e2e=3.0, completion_tokens=1), CEILING, 100) is None
    assert ceiling_line(Answer(text="x", ttft=1.0, e2e=3.0, completion_tokens=9), CEILING, 0) is None


def test_the_curl_line_is_a_whole_shell_command_with_valid_json() -> None:
    words = shlex.split(curl_line("http://127.0.0.1:8000/v1"))
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/chat/completions"]
    assert json.loads(words[-1])["messages"][0]["role"] == "user"


def test_the_demo_says_plainly_what_its_model_is() -> None:
    assert "135 million" in ABOUT
    assert "barely speaks Chinese" in ABOUT
