"""Chats that are kept: across reloads and restarts, found again, renamed, deleted, taken away as a file."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.e2e.page.conftest import OpenTab
from tests.e2e.page.running_page import RunningPage, Tab
from tests.e2e.page.scripted_model import Script, ScriptedModel, echo, wait_until


def threads(page: Page) -> list[str]:
    return page.locator("#thread-history li a").all_inner_texts()


def test_a_chat_survives_a_restart_of_the_page_and_goes_on_with_the_same_prefix(
    open_tab: OpenTab, running_page: RunningPage, model: ScriptedModel
) -> None:
    # The page's server goes away: the browser says so, and that is no fault of the page's.
    with open_tab(allowed="ERR_CONNECTION_REFUSED|WebSocket|Failed to load resource|Failed to fetch") as tab:
        tab.ask_and_wait("Remember 42, 你好 🎉")
        figures = tab.foot
        running_page.stop()
        running_page.start()
        tab.reload()
        tab.expect_answer("You said: Remember 42, 你好 🎉")
        assert tab.foot == figures
        tab.ask_and_wait("What did I say?")
        first, second = model.asked
        assert second.messages[: len(first.messages)] == first.messages
        assert second.messages[1]["content"] == "You said: Remember 42, 你好 🎉 "


def test_an_answer_goes_on_while_its_tab_is_reloaded_and_can_still_be_stopped(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([f"word{n} " for n in range(2000)], pause=0.02)
    tab.ask("Count")
    tab.expect_answer("word5")
    tab.reload()
    tab.expect_answer("word5")
    shown = len(tab.page.locator(".ai-message").inner_text())
    expect(tab.page.locator("#stop-button")).to_be_visible()
    tab.page.wait_for_function(f"document.querySelector('.ai-message').innerText.length > {shown + 50}")
    tab.page.click("#stop-button")
    tab.expect_feet(1)
    assert model.asked[0].aborted
    assert len(model.asked) == 1
    model.reply = echo
    tab.ask_and_wait("And then?")
    assert [message["role"] for message in model.asked[1].messages] == ["user", "assistant", "user"]
    assert model.asked[1].messages[1]["content"].startswith("word0 word1 ")


def test_the_page_keeps_what_came_when_it_is_ended_in_the_middle_of_an_answer(
    open_tab: OpenTab, running_page: RunningPage, model: ScriptedModel
) -> None:
    model.reply = lambda _: Script([f"word{n} " for n in range(2000)], pause=0.02)
    with open_tab(allowed="ERR_CONNECTION_REFUSED|WebSocket|Failed to load resource|Failed to fetch") as tab:
        tab.ask("Count")
        tab.expect_answer("word5")
        running_page.stop()
        running_page.start()
        tab.reload()
        tab.expect_answer("word5")
        tab.expect_feet(1)


def test_chats_are_found_renamed_and_deleted(tab: Tab) -> None:
    tab.ask_and_wait("A question about herons")
    tab.page.locator("#new-chat-button").first.click()
    expect(tab.page.locator("#welcome-screen")).to_be_visible()
    tab.ask_and_wait("Another about ibises")
    tab.page.keyboard.press("Control+k")
    tab.page.get_by_placeholder("Search conversations...").fill("said: a question herons")  # words of the answer too
    expect(tab.page.locator("[cmdk-item]")).to_have_count(1)
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("Enter")
    tab.expect_answer("You said: A question about herons")

    heron = tab.page.locator("#thread-history li", has_text="A question about herons")
    heron.locator("#thread-options").click()
    tab.page.click("#rename-thread")
    tab.page.locator("[role=dialog] input").fill("Birds")
    tab.page.get_by_role("button", name="Confirm").click()
    expect(tab.page.locator("#thread-history li", has_text="Birds")).to_be_visible()

    tab.page.locator("#thread-history li", has_text="Birds").locator("#thread-options").click()
    tab.page.click("#delete-thread")
    tab.page.get_by_role("button", name="Confirm").click()
    expect(tab.page.locator("#thread-history li", has_text="Birds")).to_have_count(0)
    tab.page.reload()
    expect(tab.page.locator("#thread-history li", has_text="ibises").first).to_be_visible()
    assert "Birds" not in threads(tab.page)


def test_a_chat_that_is_deleted_while_it_is_answered_stops_and_stays_deleted(tab: Tab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([f"word{n} " for n in range(2000)], pause=0.02)
    tab.ask("Delete me")
    tab.expect_answer("word5")
    tab.page.locator("#thread-history li", has_text="Delete me").locator("#thread-options").click()
    tab.page.click("#delete-thread")
    tab.page.get_by_role("button", name="Confirm").click()
    wait_until(lambda: model.asked[0].aborted)
    expect(tab.page.locator("#thread-history li", has_text="Delete me")).to_have_count(0)
    # Chainlit may have opened it once more before it was gone: it leaves a chat's address only after that
    tab.page.goto(tab.page.url.partition("/thread")[0])
    expect(tab.page.locator("#starters button").first).to_be_enabled()
    assert "Delete me" not in threads(tab.page)


def test_a_chat_is_exported_as_markdown_and_all_of_them_as_json(tab: Tab, tmp_path: Path) -> None:
    tab.ask_and_wait("Say 100 %, 你好")
    with tab.page.expect_download() as one:
        tab.page.get_by_label("Export this chat").click()
    assert one.value.suggested_filename == "Say 100 你好.md"
    text = Path(one.value.path()).read_text()
    assert text.startswith(
        "# Say 100 %, 你好\n\n## User\n\nSay 100 %, 你好\n\n## Assistant\n\nYou said: Say 100 %, 你好"
    )
    assert "*TTFT " in text
    with tab.page.expect_download() as everything:
        tab.page.get_by_label("Export all chats").click()
    chats = json.loads(Path(everything.value.path()).read_text())
    assert [message["role"] for message in chats[0]["messages"]] == ["user", "assistant"]
    assert chats[0]["name"] == "Say 100 %, 你好"


def test_nobody_reads_a_chat_without_its_users_session(tab: Tab, running_page: RunningPage) -> None:
    tab.ask_and_wait("secret")
    thread = tab.address.rsplit("/", 1)[-1]
    anonymous = tab.page.context.browser.new_context() if tab.page.context.browser else None
    assert anonymous is not None
    for path in (
        f"/firsttoken/export/{thread}",
        "/firsttoken/export",
        f"/project/thread/{thread}",
        "/firsttoken/state",
    ):
        assert anonymous.request.get(running_page.url + path).status == 401, path
    anonymous.close()
