"""Who may speak to the page, and what its document may load."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from firsttoken.chat.page.document import policy, tidy
from firsttoken.chat.page.guard import Guard
from firsttoken.chat.page.options import Options, parse
from firsttoken.errors import ConfigError


def guard(host: str = "127.0.0.1", *origins: str) -> Guard:
    options = Options("http://127.0.0.1:8000", None, host, 8080, Path("x"), "a password", origins)
    return Guard(PlainTextResponse("ok"), options)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080"])
def test_this_machines_names_are_served_on_loopback(host: str) -> None:
    assert guard().refusal(Headers({"host": host})) is None
    assert guard().refusal(Headers({"host": host, "origin": f"http://{host}"})) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:8080"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"host": "127.0.0.1:8080", "origin": "http://evil.example"},
        {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:9999"},
        {"host": "127.0.0.1:8080", "origin": "null"},
    ],
)
def test_other_sites_are_not_served_on_loopback(headers: dict[str, str]) -> None:
    assert "--allow-origin" in str(guard().refusal(Headers(headers)))


def test_an_allowed_origin_is_served_under_its_name() -> None:
    allowing = guard("127.0.0.1", "https://chat.example")
    assert allowing.refusal(Headers({"host": "chat.example", "origin": "https://chat.example"})) is None
    assert allowing.refusal(Headers({"host": "127.0.0.1:8080", "origin": "https://chat.example"})) is None


def test_elsewhere_a_password_guards_any_name_but_no_foreign_origin_passes() -> None:
    assert guard("0.0.0.0").refusal(Headers({"host": "box.lan:8080", "origin": "http://box.lan:8080"})) is None
    assert guard("0.0.0.0").refusal(Headers({"host": "box.lan:8080", "origin": "http://evil.example"}))


def test_listening_elsewhere_takes_a_password_that_is_long_enough() -> None:
    with pytest.raises(ConfigError, match="FIRSTTOKEN_UI_PASSWORD"):
        parse(["--host", "0.0.0.0"], {})
    with pytest.raises(ConfigError, match="shorter than 8"):
        parse(["--host", "0.0.0.0"], {"FIRSTTOKEN_UI_PASSWORD": "short"})
    assert parse(["--host", "0.0.0.0"], {"FIRSTTOKEN_UI_PASSWORD": "long enough"}).password == "long enough"
    assert parse([], {}).password is None


def test_the_document_names_no_other_host_and_runs_only_scripts_it_came_with() -> None:
    html = tidy(
        '<link rel="preconnect" href="https://fonts.gstatic.com" crossorigin /><link\n href="https://fonts.example/a.css"\n'
        ' rel="stylesheet"\n/><meta property="og:image" content="https://x/y.png"><script>\nlet a = 1;\n</script>'
        '<script src="https://evil.example/x.js"></script><script src="/assets/index.js"></script>'
    )
    assert "https://" not in html
    assert '<script src="/assets/index.js"></script>' in html
    digest = base64.b64encode(hashlib.sha256(b"\nlet a = 1;\n").digest()).decode()
    assert f"'sha256-{digest}'" in policy(html)
    assert "'unsafe-inline'" not in policy(html).split("style-src")[0]
