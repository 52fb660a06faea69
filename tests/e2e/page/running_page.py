"""The chat page's process as a user starts it, and the browser before it."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from tests.e2e.page.scripted_model import free_port

from firsttoken.cli.page_environment import page_environment

CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
expect.set_options(timeout=20_000)  # of a browser that shares two cores with two servers
_QUESTION = "[data-step-type=user_message]"
_SOURCE = Path(__file__).resolve().parents[3] / "src"


def chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    return None


def missing() -> str | None:
    """What these tests lack here, in words; None when they can run."""
    if chromium() is None:
        return "the chat page's tests were left out: there is no Chromium (make browser installs it)"
    if not page_environment().is_ready:
        return "the chat page's tests were left out: the page is not set up (firsttoken ui --setup does it)"
    return None


class RunningPage:
    """`python -m firsttoken.chat.page`, which can be ended and started again on the same port and data."""

    def __init__(self, server_url: str, data: Path, **environment: str) -> None:
        self._data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            *(str(page_environment().python), "-P", "-s", "-m", "firsttoken.chat.page"),
            *("--url", server_url, "--port", str(self.port), "--data-dir", str(data)),
        ]
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(data), "PYTHONPATH": str(_SOURCE)} | environment
        self.start()

    def __enter__(self) -> RunningPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.strip() == self.url, f"it said {line!r} and {self.complaints()}"

    def forget_settings(self) -> None:
        """What one test has set is not what the next one's new chats begin with."""
        with closing(sqlite3.connect(self._data / "chats.sqlite3", timeout=20)) as store, store:
            store.execute("UPDATE users SET settings = '{}'")

    def complaints(self) -> str:
        """Ends it; what it wrote to its standard error."""
        self._process.terminate()
        _, errors = self._process.communicate(timeout=10)
        return str(errors)

    def stop(self) -> None:
        assert self.complaints() == ""


class Tab:
    """A browser tab on the page. What a user does has a method; what goes wrong in the browser is remembered."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.set_default_timeout(20_000)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.goto(url)
        expect(page.locator("#starters button").first).to_be_enabled(timeout=20_000)  # it is connected

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"{message.text} ({message.location.get('url')})")

    def ask(self, question: str) -> None:
        """Fills it in until it is taken: what comes while Chainlit draws anew is lost, and nobody types so quickly."""
        said = self.page.locator(_QUESTION).filter(has_text=question)  # none while it draws, nor before the first time
        before = said.count()
        for _ in range(4):
            self.page.fill("#chat-input", question)
            with suppress(AssertionError):
                expect(self.page.locator("#chat-submit")).to_be_enabled(timeout=5000)
                self.page.press("#chat-input", "Enter")
                expect(said).not_to_have_count(before, timeout=5000)
                return
            self.page.fill("#chat-input", "")
        raise AssertionError(f"{question!r} was never taken")

    def expect_answer(self, text: str | re.Pattern[str], number: int = -1) -> None:
        expect(self.page.locator(".ai-message .message-content").nth(number)).to_contain_text(text)

    def expect_feet(self, count: int) -> None:
        """That many answers are done."""
        expect(self.page.locator(".foot")).to_have_count(count)

    def ask_and_wait(self, question: str) -> None:
        """Until each question has an answer that is done; counted together, since Chainlit may be drawing anew."""
        self.ask(question)
        done = f"""text => {{
            const asked = [...document.querySelectorAll("{_QUESTION}")];
            const feet = document.querySelectorAll(".foot").length;
            return asked.at(-1)?.innerText.includes(text) && feet === asked.length;
        }}"""
        self.page.wait_for_function(done, arg=question.splitlines()[0][:40].strip(), timeout=20_000)

    @property
    def address(self) -> str:
        """The chat's own, which Chainlit gives it a moment after its first question."""
        self.page.wait_for_url("**/thread/*")
        return self.page.url

    def reload(self) -> None:
        """Loads a chat again; before it has an address that would be the empty page."""
        self.page.goto(self.address)

    @property
    def foot(self) -> str:
        return self.page.locator(".foot").last.inner_text()

    def set(self, **values: str) -> None:
        """Fills fields of the settings panel and confirms."""
        self.page.click("#chat-settings-open-modal")
        for name, value in values.items():
            self.page.fill(f"#chat-settings #{name}", value)
        self.page.click("#chat-settings #confirm")
        expect(self.page.locator("#chat-settings")).to_have_count(0)


@contextmanager
def tab_on(browser: Browser, url: str, *, allowed: str = "", **context: Any) -> Iterator[Tab]:
    """Nothing may go wrong in the browser but what matches `allowed`."""
    with browser.new_context(**context) as opened:
        tab = Tab(opened.new_page(), url)
        yield tab
        if allowed:
            tab.problems = [problem for problem in tab.problems if not re.search(allowed, problem)]
        assert tab.problems == []


if __name__ == "__main__":
    sys.exit(missing())
