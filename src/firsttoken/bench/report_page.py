"""The frame of a page that needs no network: its policy, style and script, its head with the choice of language."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from firsttoken.bench.words import Words

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_page(title: str, body: str) -> str:
    """The whole page around a body that is HTML already."""
    page = files("firsttoken.bench") / "page"
    style, script = (page / "style.css").read_text("utf-8"), (page / "script.js").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def page_head(title: str, facts: Sequence[tuple[Words, str]]) -> str:
    """Title, facts and the choice of language; facts without a value are left out."""
    items = "".join(f"<li>{name.html} <b>{escape(value)}</b></li>" for name, value in facts if value)
    return (
        f'<div class="top"><div><h1>{escape(title)}</h1><ul class="facts">{items}</ul></div>'
        '<div class="languages" role="group" aria-label="Language / 语言">'
        '<button type="button" data-language="en">English</button>'
        '<button type="button" data-language="zh" lang="zh">中文</button></div></div>\n'
    )
