"""The page on a phone, by keyboard alone, and as assistive technology sees it."""

from __future__ import annotations

from importlib.resources import files

from playwright.sync_api import Page, expect
from tests.e2e.page.conftest import OpenTab
from tests.e2e.page.running_page import Tab
from tests.e2e.page.scripted_model import Script, ScriptedModel
from tests.e2e.page.test_answers import RICH

PHONE = {"width": 390, "height": 844}


def serious(page: Page) -> list[str]:
    """axe's findings that keep people out, each with a place."""
    page.wait_for_timeout(700)  # what fades in has a poor contrast until it is there
    # Its package's own runner leaves files open, which is an error here. Injected as the page's own script would be.
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(results => results.violations)")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')[:300]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_axe_finds_nothing_serious_in_either_theme(open_tab: OpenTab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([RICH], finish="length", thought="Let me see.")
    for scheme in ("light", "dark"):
        with open_tab(color_scheme=scheme) as tab:
            assert serious(tab.page) == [], "the welcome screen"
            tab.ask_and_wait("Show me everything")
            assert serious(tab.page) == [], "an answer"
            tab.page.click("#chat-settings-open-modal")
            expect(tab.page.locator("#chat-settings")).to_be_visible()
            assert serious(tab.page) == [], "the settings"


def test_a_phone_shows_everything_without_scrolling_sideways(open_tab: OpenTab, model: ScriptedModel) -> None:
    model.reply = lambda _: Script([RICH])
    # Chainlit's drawer has no title, which its own library remarks.
    with open_tab(allowed="DialogTitle", viewport=PHONE, has_touch=True, is_mobile=True, locale="zh-CN") as tab:
        assert overflow(tab) <= 0
        tab.page.tap("#chat-input")
        tab.page.fill("#chat-input", "展示一切")
        expect(tab.page.locator("#chat-submit")).to_be_enabled()
        tab.page.tap("#chat-submit")
        tab.expect_feet(1)
        assert overflow(tab) <= 0
        expect(tab.page.locator(".foot-figures")).to_be_in_viewport()
        tab.page.tap("#sidebar-trigger-button")
        expect(tab.page.locator("#thread-history li").first).to_be_visible()
        tab.page.touchscreen.tap(370, 500)
        expect(tab.page.locator("#thread-history")).to_have_count(0)
        tab.page.tap("#chat-settings-open-modal")
        expect(tab.page.locator("#chat-settings #temperature")).to_be_visible()
        assert overflow(tab) <= 0


def overflow(tab: Tab) -> int:
    return int(tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_a_keyboard_alone_asks_stops_copies_edits_and_renames(tab: Tab, model: ScriptedModel) -> None:
    page = tab.page
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.id"

    def tab_to(label: str, key: str = "Tab") -> None:
        for _ in range(60):
            if page.evaluate(focused) == label:
                return
            page.keyboard.press(key)
        raise AssertionError(f"{label} is not reached by {key}")

    expect(page.locator("#chat-input")).to_be_focused()
    page.keyboard.type("first by hand")
    page.keyboard.press("Enter")
    tab.expect_feet(1)

    # A chat's first question gives it an address and a place in the list, and Chainlit draws all of it anew
    page.wait_for_url("**/thread/**")
    expect(page.locator("#thread-history")).to_contain_text("first by hand")

    tab_to("Settings")
    page.keyboard.press("Enter")
    expect(page.locator("#chat-settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#chat-input")).to_be_focused()

    tab_to("Edit this question", "Shift+Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.type("second")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    tab.expect_answer("You said: second")
    tab.expect_feet(1)

    tab_to("Regenerate")
    model.reply = lambda _: Script(["again "] * 1000, pause=0.02)
    page.keyboard.press("Enter")
    tab.expect_answer("again")
    page.keyboard.press("Escape")
    tab.expect_feet(1)
    assert model.asked[-1].aborted

    tab_to("Rename or delete")
    page.keyboard.press("Enter")
    expect(page.locator("#rename-thread")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#rename-thread")).to_have_count(0)
    page.wait_for_timeout(300)  # the closing menu and the dialog hand the focus to each other
    expect(page.locator("[role=dialog] input")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Tab")  # Cancel
    page.keyboard.press("Tab")  # Confirm
    page.keyboard.press("Enter")
    expect(page.locator("#thread-history li", has_text="By keyboard")).to_be_visible()


def test_a_dialog_that_is_left_as_soon_as_it_opens_leads_back_to_the_question(open_tab: OpenTab) -> None:
    with open_tab(reduced_motion="reduce") as tab:  # nothing keeps a closed dialog in sight
        tab.page.evaluate(
            """new MutationObserver((_, observer) => {
                const escape = new KeyboardEvent('keydown', { key: 'Escape', bubbles: true, cancelable: true });
                if (document.querySelector('#chat-settings')?.dispatchEvent(escape)) observer.disconnect();
            }).observe(document.body, { childList: true })"""
        )
        tab.page.click("#chat-settings-open-modal")
        expect(tab.page.locator("#chat-input")).to_be_focused()
        assert tab.page.locator("#chat-settings").count() == 0
