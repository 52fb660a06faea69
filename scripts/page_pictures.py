#!/usr/bin/env python3
"""Makes docs/pictures from the real chat page before the demo model: `make browser`, then this. Needs no other tool."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from tests.e2e.page.running_page import CHROMIUM_FLAGS, RunningPage, chromium, missing, tab_on  # noqa: E402
from tests.e2e.page.scripted_model import free_port, wait_until  # noqa: E402
from tests.e2e.page.test_speed import ready  # noqa: E402

from firsttoken.model.hub import resolve  # noqa: E402

WIDE, PHONE = {"width": 1180, "height": 720}, {"width": 390, "height": 760}


def main() -> None:
    if lacking := missing():
        sys.exit(f"Error: {lacking}")
    port = free_port()
    command = [sys.executable, "-m", "firsttoken", "serve", resolve("demo"), "--served-model-name", "demo"]
    with tempfile.TemporaryDirectory() as data, subprocess.Popen([*command, "--port", str(port)]) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: ready(url), 120)
            with RunningPage(url, Path(data)) as page, sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
                chat = picture(browser, page.url, "light", viewport=WIDE)
                picture(browser, page.url, "dark", chat, viewport=WIDE, color_scheme="dark")
                phone = {"viewport": PHONE, "locale": "zh-CN", "has_touch": True, "is_mobile": True}
                picture(browser, page.url, "phone", chat, **phone)
                browser.close()
        finally:
            server.terminate()


def picture(browser: Browser, url: str, name: str, chat: str | None = None, **context: object) -> str:
    """Of that chat, else of a new one; returns the chat's address."""
    with tab_on(browser, url, allowed="DialogTitle", **context) as tab:
        if chat:
            tab.page.goto(chat)
        else:
            tab.set(seed="5", max_tokens="260")
            tab.ask_and_wait("Write quicksort in Python.")
            tab.page.get_by_label("Regenerate").click()  # now from the prefix cache, as in the middle of a chat
            tab.page.wait_for_function("!document.querySelector('.foot')")
        tab.expect_feet(1)
        tab.page.mouse.move(5, 400)
        tab.page.wait_for_timeout(1500)  # for what fades in and out
        tab.page.screenshot(path=ROOT / "docs" / "pictures" / f"chat-{name}.png")
        return tab.page.url


if __name__ == "__main__":
    main()
