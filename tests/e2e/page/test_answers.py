"""Asking and reading: what streams, how it is drawn, how it is stopped, asked again and edited."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from tests.e2e.page.conftest import OpenTab
from tests.e2e.page.running_page import Tab
from tests.e2e.page.scripted_model import Asked, Script, ScriptedModel, echo, wait_until

RICH = """Here is **quicksort**:

```python
def quicksort(items):
    return items
```

It takes \\(O(n \\log n)\\) steps, costs $5 and then $10:

\\[ \\sum_{i=1}^{n} i \\]

| case | time |
|---|---|
| worst | n² |

<b>raw</b> <img src=x onerror="window.broken = 1"> ![a picture](https://example.com/x.png)

你好，世界 👩‍👩‍👧‍👦 done"""


def test_an_answer_streams_and_its_figures_stand_below(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([f"word{n} " for n in range(40)], pause=0.02, first=0.05)
    tab.ask("Tell me something")
    tab.expect_answer("word3")
    assert "word39" not in tab.page.locator(".ai-message").inner_text()
    tab.expect_answer("word39")
    tab.expect_feet(1)
    assert re.search(r"TTFT \d+ ms · [\d.]+ tok/s · 40 tokens · prompt 6, 0% cached · E2E [\d.]+ s", tab.foot)


def test_markdown_code_formulas_and_every_script_are_drawn_and_html_is_not(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([RICH[n : n + 7] for n in range(0, len(RICH), 7)], pause=0.005)
    loaded: list[str] = []
    tab.page.on("request", lambda request: loaded.append(request.url))
    tab.ask_and_wait("Show me everything")
    answer = tab.page.locator(".ai-message .message-content")
    expect(answer.locator("pre code .hljs-keyword").first).to_have_text("def")
    expect(answer.locator(".katex-mathml math")).to_have_count(2)
    expect(answer.locator(".katex-display")).to_have_attribute("tabindex", "0")  # a wide one scrolls
    expect(answer.locator("td").last).to_have_text("n²")
    expect(answer.get_by_text("costs $5 and then $10")).to_be_visible()
    expect(answer.get_by_text("你好，世界 👩‍👩‍👧‍👦 done")).to_be_visible()
    expect(answer.get_by_text('<b>raw</b> <img src=x onerror="window.broken = 1">')).to_be_visible()
    expect(answer.get_by_role("link", name="a picture")).to_have_attribute("href", "https://example.com/x.png")
    assert tab.page.evaluate("window.broken") is None
    assert [url for url in loaded if "127.0.0.1" not in url] == []


def test_code_and_answer_can_be_copied_as_the_model_wrote_them(open_tab: OpenTab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([RICH])
    with open_tab(permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.ask_and_wait("Show me everything")
        tab.page.get_by_label("Copy the code").click()
        wait_until(lambda: "def quicksort" in tab.page.evaluate("navigator.clipboard.readText()"))
        tab.page.locator(".foot").get_by_label("Copy").click()
        wait_until(lambda: tab.page.evaluate("navigator.clipboard.readText()") == RICH)


def test_stop_ends_the_request_and_keeps_what_came(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([f"word{n} " for n in range(1000)], pause=0.02)
    tab.ask("Count")
    tab.expect_answer("word5")
    tab.page.click("#stop-button")
    wait_until(lambda: model.asked[0].aborted, 2)
    tab.expect_feet(1)
    assert "Stopped." in tab.foot
    assert re.search(r"≈\d+ tokens", tab.foot)
    shown = tab.page.locator(".ai-message .message-content > div").first.inner_text()
    assert "word5" in shown
    model.reply = echo
    tab.ask_and_wait("And now?")
    assert model.asked[1].messages[1]["content"].split() == shown.split()


def test_the_escape_key_stops_an_answer(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([f"word{n} " for n in range(1000)], pause=0.02)
    tab.ask("Count")
    tab.expect_answer("word2")
    expect(tab.page.locator("#stop-button")).to_be_visible()
    tab.page.keyboard.press("Escape")
    tab.expect_feet(1)
    assert model.asked[0].aborted


def test_a_follow_up_sends_the_same_prefix_and_shows_the_cached_share(tab: Tab, model: ScriptedModel) -> None:
    tab.ask_and_wait("first question")
    tab.ask_and_wait("second question")
    first, second = model.asked
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["role"] for message in second.messages] == ["user", "assistant", "user"]
    assert re.search(r"prompt \d+, [1-9]\d% cached", tab.foot)


def test_an_edited_question_replaces_all_that_followed(tab: Tab, model: ScriptedModel) -> None:
    for question in ("one", "two", "three"):
        tab.ask_and_wait(question)
    tab.page.get_by_text("two", exact=True).first.hover()
    tab.page.locator(".edit-message").nth(1).click()
    tab.page.fill("#edit-chat-input", "two, but better")
    tab.page.click(".confirm-edit")
    tab.expect_answer("You said: two, but better")
    tab.expect_feet(2)
    assert [message["content"] for message in model.asked[-1].messages[::2]] == ["one", "two, but better"]
    tab.reload()
    tab.expect_feet(2)


def test_regenerate_asks_the_same_again_and_can_be_stopped(tab: Tab, model: ScriptedModel) -> None:
    tab.ask_and_wait("one")
    tab.ask_and_wait("two")
    model.reply = lambda _: Script(["again "] * 500, pause=0.02)
    tab.page.get_by_label("Regenerate").last.click()
    tab.expect_answer("again")
    tab.page.click("#stop-button")
    tab.expect_feet(2)
    assert model.asked[2].messages == model.asked[1].messages
    assert model.asked[2].aborted


def test_a_thinking_models_thought_can_be_opened_and_is_not_sent_back(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script(["So it is."], thought="Let me see.")
    tab.ask_and_wait("Is it?")
    tab.page.get_by_text("Thinking").click()
    expect(tab.page.get_by_text("Let me see.")).to_be_visible()
    tab.ask_and_wait("Sure?")
    assert "Let me see." not in str(model.asked[1].messages)


def test_starters_ask_in_the_browsers_language(open_tab: OpenTab, model: ScriptedModel) -> None:
    with open_tab(locale="zh-CN") as tab:
        expect(tab.page.locator("#starters button")).to_have_count(4)
        tab.page.get_by_text("用 Python 写快速排序").click()
        tab.expect_feet(1)
        assert "快速排序" in model.asked[0].question
        assert "首 token" in tab.foot
    with open_tab(locale="en-GB") as tab:
        tab.page.get_by_text("Quicksort in Python").click()
        tab.expect_feet(1)
        assert "quicksort" in model.asked[1].question


def test_two_tabs_talk_at_once_and_do_not_mix(open_tab: OpenTab, model: ScriptedModel) -> None:
    def reply(asked: Asked) -> Script:
        return Script([f"{asked.question}-{n} " for n in range(60)], pause=0.02)

    model.reply = reply
    with open_tab() as left, open_tab() as right:
        left.ask("left")
        right.ask("right")
        left.expect_answer("left-59")
        right.expect_answer("right-59")
        assert "right" not in left.page.locator(".ai-message").inner_text()
        assert "left" not in right.page.locator(".ai-message").inner_text()
