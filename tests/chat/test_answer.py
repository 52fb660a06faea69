"""The figures under an answer, in both languages."""

from __future__ import annotations

import pytest

from firsttoken.chat.answer import Answer, figures
from firsttoken.chat.language import language_of, language_of_environment

FULL = Answer("x", ttft=0.5, e2e=2.5, completion_tokens=21, prompt_tokens=40, cached_tokens=16, finish_reason="length")


def test_decode_speed_counts_the_tokens_after_the_first() -> None:
    assert Answer(ttft=1.0, e2e=3.0, completion_tokens=11).tokens_per_second == pytest.approx(5.0)
    assert Answer(ttft=1.0, e2e=3.0, completion_tokens=1).tokens_per_second is None


def test_figures_name_time_speed_tokens_cached_share_and_a_cut() -> None:
    assert figures(FULL) == (
        "TTFT 500 ms · 10.0 tok/s · 21 tokens · prompt 40, 40% cached · E2E 2.50 s · cut at the token limit"
    )
    assert figures(FULL, "zh") == (
        "首 token 500 ms · 10.0 tok/s · 21 个 token · 提示词 40，缓存命中 40% · 总耗时 2.50 s · 到达 token 上限而截断"
    )


def test_figures_leave_out_what_is_not_known_and_mark_what_was_counted_later() -> None:
    assert figures(Answer(text="x", ttft=0.0821, e2e=1.5)) == "TTFT 82 ms · E2E 1.50 s"
    stopped = Answer(text="x", ttft=0.5, e2e=1.5, completion_tokens=11, counted=False)
    assert figures(stopped) == "TTFT 500 ms · ≈10.0 tok/s · ≈11 tokens · E2E 1.50 s"


@pytest.mark.parametrize(
    ("tag", "language"), [("zh_CN.UTF-8", "zh"), ("zh-TW,en;q=0.5", "zh"), ("en-US,zh;q=0.9", "en"), ("C", "en")]
)
def test_the_first_language_of_a_tag_decides(tag: str, language: str) -> None:
    assert language_of(tag) == language


def test_the_first_variable_that_is_set_decides() -> None:
    assert language_of_environment({"LC_ALL": "zh_CN", "LANG": "en_US"}) == "zh"
    assert language_of_environment({"LC_ALL": "", "LANG": "zh_CN"}) == "zh"
    assert language_of_environment({}) == "en"
