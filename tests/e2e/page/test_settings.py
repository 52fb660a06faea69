"""The settings panel, and what of it reaches the server."""

from __future__ import annotations

import json

from playwright.sync_api import expect
from tests.e2e.page.conftest import OpenTab
from tests.e2e.page.running_page import Tab
from tests.e2e.page.scripted_model import ScriptedModel

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_what_is_left_empty_is_not_sent_and_the_recommended_values_are_shown(tab: Tab, model: ScriptedModel) -> None:
    tab.ask_and_wait("one")
    assert set(model.asked[0].body) == {"model", "messages", "stream", "stream_options"}
    tab.page.click("#chat-settings-open-modal")
    expect(tab.page.locator("#temperature")).to_have_attribute("placeholder", "0.7 (recommended)")
    expect(tab.page.locator("#top_k")).to_have_attribute("placeholder", "20 (recommended)")


def test_every_setting_reaches_the_request_and_the_next_chat(tab: Tab, model: ScriptedModel) -> None:
    tab.page.click("#chat-settings-open-modal")
    tab.page.locator("#chat-settings [role=combobox]").click()
    tab.page.get_by_role("option", name="other").click()
    tab.page.keyboard.press("Escape")
    values = {"temperature": "0.25", "top_p": "0.5", "top_k": "7", "min_p": "0.05", "presence_penalty": "0.5",
              "frequency_penalty": "-0.5", "repetition_penalty": "1.1", "max_tokens": "77", "seed": "42"}  # fmt: skip
    tab.set(system="Answer in verse.", json_schema=json.dumps(SCHEMA), **values)
    tab.ask_and_wait("one")
    tab.page.locator("#new-chat-button").first.click()
    tab.ask_and_wait("two")
    for asked in model.asked:
        body = asked.body
        sent = {name: body[name] for name in values if name != "max_tokens"}
        assert sent == {name: float(value) for name, value in values.items() if name != "max_tokens"}
        assert body["max_completion_tokens"] == 77
        assert body["response_format"]["json_schema"]["schema"] == SCHEMA
        assert asked.messages[0] == {"role": "system", "content": "Answer in verse."}

    tab.page.click("#chat-settings-open-modal")
    tab.page.locator("#chat-settings [role=switch]").click()
    expect(tab.page.locator("#temperature")).to_have_value("")
    expect(tab.page.locator("#system")).to_have_value("Answer in verse.")
    tab.page.click("#chat-settings #confirm")
    tab.ask_and_wait("three")
    assert set(model.asked[2].body) == {"model", "messages", "stream", "stream_options"}


def test_another_model_can_be_chosen(tab: Tab, model: ScriptedModel) -> None:
    tab.page.click("#chat-settings-open-modal")
    tab.page.locator("#chat-settings [role=combobox]").click()
    tab.page.get_by_role("option", name="other").click()
    tab.page.click("#chat-settings #confirm")
    tab.ask_and_wait("one")
    assert model.asked[0].body["model"] == "other"


def test_a_wrong_value_is_said_in_words_and_not_taken(open_tab: OpenTab, model: ScriptedModel) -> None:
    with open_tab() as tab:
        tab.set(temperature="hot")
        expect(tab.page.get_by_text("Temperature: “hot” is not a number.")).to_be_visible()
        tab.set(temperature="", top_p="1.5")
        expect(tab.page.get_by_text("Top-p must be > 0 to 1.")).to_be_visible()
        tab.set(top_p="", json_schema="{")
        expect(tab.page.get_by_text("The JSON schema is not a JSON object")).to_be_visible()
        tab.ask_and_wait("one")
        assert set(model.asked[0].body) == {"model", "messages", "stream", "stream_options"}


def test_a_chat_keeps_its_own_settings(tab: Tab, model: ScriptedModel) -> None:
    tab.set(temperature="0.1")
    tab.ask_and_wait("one")
    address = tab.address
    tab.page.locator("#new-chat-button").first.click()
    expect(tab.page.locator("#welcome-screen")).to_be_visible()
    tab.set(temperature="")
    tab.ask_and_wait("two")
    tab.page.goto(address)
    tab.expect_feet(1)
    tab.ask_and_wait("three")
    assert [asked.body.get("temperature") for asked in model.asked] == [0.1, None, 0.1]
