"""What a user sees when something is not as it should be."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from tests.e2e.page.conftest import OpenTab
from tests.e2e.page.running_page import Tab
from tests.e2e.page.scripted_model import CONTEXT, RunningModel, Script, ScriptedModel, count, wait_until


def test_a_server_that_is_down_is_waited_for_and_the_question_is_answered(
    tab: Tab, running_model: RunningModel, model: ScriptedModel
) -> None:
    tab.ask_and_wait("one")
    running_model.stop()
    try:
        tab.ask("two")
        expect(tab.page.locator(".waiting")).to_contain_text("does not answer")
        expect(tab.page.locator("#server-state")).to_contain_text("does not answer")
    finally:
        running_model.start()
    tab.expect_feet(2)
    tab.expect_answer("You said: two")
    expect(tab.page.locator(".waiting")).to_have_count(0)
    expect(tab.page.locator("#server-state")).to_be_hidden(timeout=12_000)


def test_waiting_for_a_server_that_is_down_can_be_stopped(tab: Tab, running_model: RunningModel) -> None:
    running_model.stop()
    try:
        tab.ask("one")
        expect(tab.page.locator(".waiting")).to_be_visible()
        tab.page.click("#stop-button")
        tab.expect_feet(1)
        assert "Stopped." in tab.foot
    finally:
        running_model.start()


def test_a_loading_model_shows_a_bar_and_the_question_waits(open_tab: OpenTab, model: ScriptedModel) -> None:
    model.state, model.fraction = "loading", 0.25
    with open_tab() as tab:
        bar = tab.page.locator("#server-state progress")
        expect(bar).to_have_attribute("value", "0.25")
        tab.ask("Are you there?")
        expect(tab.page.locator(".waiting progress")).to_have_attribute("value", "0.25")
        model.fraction = 0.75
        expect(tab.page.locator(".waiting progress")).to_have_attribute("value", "0.75")
        model.state = "ready"
        tab.expect_answer("You said: Are you there?")


def test_a_full_queue_is_said_and_waited_out(tab: Tab, model: ScriptedModel) -> None:
    model.busy = 4
    tab.ask("one")
    expect(tab.page.locator(".waiting")).to_contain_text("queue is full")
    tab.expect_answer("You said: one")


def test_a_question_longer_than_the_context_is_refused_in_words(tab: Tab, model: ScriptedModel) -> None:
    tab.ask_and_wait("word " * (CONTEXT + 10))
    assert "too long for the model's context" in tab.foot
    assert f"{CONTEXT:,} tokens" in tab.foot
    tab.ask_and_wait("short")
    assert [message["content"] for message in model.asked[-1].messages] == ["short"]


def test_an_answer_cut_at_its_limit_says_so_and_how_to_raise_it(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script(["half ", "an ", "answer"], finish="length")
    tab.set(max_tokens="3")
    tab.ask_and_wait("Go on")
    assert "cut at the limit of 3 tokens" in tab.foot
    assert model.asked[0].body["max_completion_tokens"] == 3


def test_a_connection_that_breaks_keeps_the_part_and_offers_another_try(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script(["half ", "an ", "answer"], breaks_after=2, pause=0.1)
    tab.ask_and_wait("Go on")
    tab.expect_answer("half an")
    assert "cut off" in tab.foot
    model.reply = lambda _: Script(["A whole one."])
    tab.page.get_by_role("button", name="Try again").click()
    tab.expect_answer("A whole one.")
    expect(tab.page.locator(".ai-message")).to_have_count(1)


def test_when_the_context_is_full_whole_oldest_turns_go_and_the_page_says_so(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script(["so "] * 900)
    tab.set(system="Be brief.")
    feet = []
    for number in range(5):
        tab.ask_and_wait(f"question {number} " + "word " * 200)
        feet.append(tab.foot)
    # Several turns go at once, so that the next questions find the rest in the cache: not each answer has the notice
    assert any(re.search(r"The context is full: .*no longer sent", foot) for foot in feet)
    last = model.asked[-1].messages
    assert last[0] == {"role": "system", "content": "Be brief."}
    assert last[1]["role"] == "user"
    assert not any("question 0" in message["content"] for message in last)
    assert last[-1]["content"].startswith("question 4")
    assert count(last) < CONTEXT
    expect(
        tab.page.locator("[data-step-type=user_message]").get_by_text("question 0")
    ).to_be_attached()  # still there to read


def test_a_server_that_came_back_with_another_model_is_asked_by_its_new_name(tab: Tab, model: ScriptedModel) -> None:
    tab.ask_and_wait("one")
    model.models = ["newcomer"]
    tab.ask_and_wait("two")
    wait_until(lambda: model.asked[-1].body["model"] == "newcomer")
    tab.expect_answer("You said: two")
