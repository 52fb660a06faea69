"""What a model writes, as the page's Markdown takes it.

Models write formulas as TeX does, `\\(x\\)` and `\\[x\\]`; the page reads `$x$` and `$$x$$`, and takes every pair of
dollars for one, prices too. A `$` opens a formula only where one closes by Pandoc's rule: no space inside either end
and no digit after the second. Pictures become links: the page loads nothing from elsewhere. Code stays as it is.
"""

from __future__ import annotations

import re

_CODE = re.compile(
    r"^(?P<fence> {0,3}(?P<mark>`{3,}|~{3,}))[^\n]*\n(?:.*?(?:^ {0,3}(?P=mark)[`~]*[ \t]*$|\Z))"  # fenced; perhaps open
    r"|(?P<ticks>`+)(?!`)(?:[^\n]*?[^`\n])(?P=ticks)(?!`)",  # in a line
    re.MULTILINE | re.DOTALL,
)
_PLAIN = re.compile(
    r"\\\[(?P<display>.+?)\\\]"
    r"|\\\((?P<inline>[^\n]+?)\\\)"
    r"|(?P<kept>\$\$.+?\$\$|\\\$|\$(?![\s$])(?:[^\n$\\]|\\.)*?(?<![\s\\])\$(?![\d$]))"
    r"|(?P<dollar>\$+)"
    r"|!(?=\[[^\]\n]*\]\()",
    re.DOTALL,
)


def shown(text: str) -> str:
    """The same text with formulas in dollars, prices escaped, and links for pictures."""
    parts: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        parts += [_PLAIN.sub(_written, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _PLAIN.sub(_written, text[end:])])


def _written(match: re.Match[str]) -> str:
    if (display := match["display"]) is not None:
        return f"$$\n{display.strip()}\n$$"
    if (inline := match["inline"]) is not None:
        return f"${inline.strip()}$"
    if (dollar := match["dollar"]) is not None:
        return dollar.replace("$", "\\$")
    kept = match["kept"] or ""
    if kept.startswith("$$") and _alone(match):
        return f"$$\n{kept[2:-2].strip()}\n$$"
    return kept


def _alone(match: re.Match[str]) -> bool:
    """Whether nothing else stands in its lines: then it is a formula of its own and not one in a sentence."""
    before = match.string[: match.start()].rsplit("\n", 1)[-1]
    after = match.string[match.end() :].split("\n", 1)[0]
    return not before.strip() and not after.strip()
