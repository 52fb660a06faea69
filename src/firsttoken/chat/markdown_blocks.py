"""Markdown as a terminal shows it, cut into the blocks that will change no more and the one that still grows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax

_MATH = re.compile(r"\\\(.+?\\\)|\\\[.+?\\\]|\$\$.+?\$\$", re.DOTALL)


def _keep_math(state: StateInline, silent: bool) -> bool:
    """Formulas stay as the model wrote them: a terminal shows no LaTeX, and Markdown would eat their backslashes."""
    if state.src[state.pos] not in "\\$" or not (found := _MATH.match(state.src, state.pos, state.posMax)):
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.inline.ruler.before("escape", "math", _keep_math)
    return parser


_PARSER = _parser()


class _Code(CodeBlock):
    """Without padding, so that it can be copied; in the terminal's own colours, so that it suits any background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme="ansi_dark", word_wrap=True)


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class Block(Markdown):
    """One top-level block. Its line breaks stay line breaks; links show where they lead."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = Markdown.elements | {
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
    }

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__("", hyperlinks=False)
        for token in tokens:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
        self.parsed = list(tokens)

    @property
    def is_fence(self) -> bool:
        return self.parsed[0].type == "fence"


class Blocks:
    """Takes text piece by piece, and gives blocks."""

    def __init__(self) -> None:
        self._pending = ""

    def push(self, text: str) -> None:
        self._pending += text

    def complete(self) -> list[Block]:
        """The blocks that will change no more, once. It reads all that is pending: not for every piece."""
        complete = self._pending.rfind("\n") + 1
        blocks = _split(self._pending[:complete])
        if len(blocks) < 2:
            return []
        # The last one may go on; whether another begins shows only when a line is whole.
        last, _ = blocks[-1]
        lines = self._pending.split("\n", last)
        self._pending = lines[-1]
        return [block for _, block in blocks[:-1]]

    def growing(self, lines: int) -> list[Block]:
        """What is not complete yet; of a long program the last lines only."""
        blocks = [block for _, block in _split(self._pending)]
        for block in blocks:
            if block.is_fence:
                fence = block.parsed[0]
                fence.content = "\n".join(fence.content.rstrip("\n").split("\n")[-lines:])
        return blocks

    def finish(self) -> list[Block]:
        """What is left at the end of the answer."""
        blocks = [block for _, block in _split(self._pending)]
        self._pending = ""
        return blocks


def _split(text: str) -> list[tuple[int, Block]]:
    """The top-level blocks, each with the line that it begins in."""
    found: list[tuple[int, Block]] = []
    tokens: list[Token] = []
    for token in _PARSER.parse(text):
        tokens.append(token)
        if token.level == 0 and token.nesting <= 0:
            assert tokens[0].map
            found.append((tokens[0].map[0], Block(tokens)))
            tokens = []
    return found
