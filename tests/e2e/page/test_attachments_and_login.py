"""Files that go with a question, and who is let in."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect
from tests.e2e.page.running_page import RunningPage, Tab, tab_on
from tests.e2e.page.scripted_model import CONTEXT, RunningModel, ScriptedModel


def attach(tab: Tab, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "", "buffer": content}
    tab.page.set_input_files("#upload-button-input", file)  # type: ignore[arg-type]


def test_a_text_file_is_counted_sent_with_its_question_and_kept(tab: Tab, model: ScriptedModel) -> None:
    attach(tab, "notes.py", "print('你好')  # three words".encode())
    expect(tab.page.get_by_text(f"notes.py: 6 tokens of the {CONTEXT * 3 // 4:,} that fit.")).to_be_visible()
    tab.ask_and_wait("What does it do?")
    sent = "notes.py\n```python\nprint('你好')  # three words\n```\n\nWhat does it do?"
    assert model.asked[0].question == sent
    tab.reload()
    tab.expect_feet(1)
    expect(tab.page.get_by_role("link", name="notes.py")).to_be_visible()
    tab.ask_and_wait("And now?")
    assert model.asked[1].messages[0]["content"] == sent


def test_a_file_that_comes_before_the_models_are_known_is_counted_too(
    browser: Browser, running_model: RunningModel, data: Path, model: ScriptedModel
) -> None:
    model.state = "loading"
    with RunningPage(running_model.url, data) as page, tab_on(browser, page.url) as tab:
        expect(
            tab.page.locator("#server-state progress")
        ).to_be_visible()  # its tab was opened without a list of models
        model.state = "ready"
        attach(tab, "notes.py", b"print(1)  # two")
        expect(tab.page.get_by_text("notes.py: 3 tokens of the")).to_be_visible()


def test_what_is_no_text_or_too_large_is_refused_in_words(browser: Browser, running_page: RunningPage) -> None:
    with tab_on(browser, running_page.url, allowed="41[35]") as tab:
        attach(tab, "binary", b"\x89PNG\r\n\x1a\n\0\0\0")
        expect(tab.page.get_by_text("only text and code can be attached")).to_be_visible()
        attach(tab, "long.txt", b"word " * CONTEXT)
        expect(tab.page.get_by_text(f"has {CONTEXT:,} tokens and only")).to_be_visible()
        attach(tab, "huge.txt", b"x" * 700_000)
        expect(tab.page.get_by_text("huge.txt is larger than 512 KB")).to_be_visible()
        attach(tab, "picture.png", b"\x89PNG\0")
        expect(tab.page.get_by_text("picture.png is not a text file")).to_be_visible()
        expect(tab.page.locator("#attachments")).to_have_count(0)


def test_with_a_password_nobody_gets_in_without_it(
    browser: Browser, running_model: RunningModel, data: Path, model: ScriptedModel
) -> None:
    with (
        RunningPage(running_model.url, data, FIRSTTOKEN_UI_PASSWORD="correct horse") as page,
        browser.new_context() as context,
    ):
        tab = context.new_page()
        tab.goto(page.url)
        expect(tab.locator("#email")).to_have_value("owner")  # there is one user, whose name nobody need type
        expect(tab.locator("#email")).to_be_hidden()
        tab.fill("#password", "wrong horse")
        tab.keyboard.press("Enter")
        expect(tab.get_by_text("That is not the password")).to_be_visible()
        assert context.request.get(page.url + "/user").text() == ""
        assert context.request.get(page.url + "/firsttoken/state").status == 401
        tab.fill("#password", "correct horse")
        tab.keyboard.press("Enter")
        expect(tab.locator("#chat-input")).to_be_visible()


def test_a_login_leaves_no_error_in_the_console(browser: Browser, running_model: RunningModel, data: Path) -> None:
    with (
        RunningPage(running_model.url, data, FIRSTTOKEN_UI_PASSWORD="correct horse") as page,
        browser.new_context() as context,
    ):
        tab = context.new_page()
        errors: list[str] = []
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.goto(page.url)
        expect(tab.locator("#email")).to_have_value("owner")
        tab.fill("#password", "correct horse")
        tab.keyboard.press("Enter")
        expect(tab.locator("#chat-input")).to_be_visible()
        assert errors == []


def test_another_sites_script_does_not_reach_a_page_on_loopback(browser: Browser, running_page: RunningPage) -> None:
    with browser.new_context() as context:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            assert context.request.post(running_page.url + "/auth/header", headers=headers).status == 403
        assert context.request.post(running_page.url + "/auth/header").status == 200
