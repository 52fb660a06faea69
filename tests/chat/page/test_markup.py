"""What a model writes, as the page's Markdown takes it."""

from __future__ import annotations

import pytest

from firsttoken.chat.page.markup import shown


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("costs $5 and then $10", "costs \\$5 and then \\$10"),
        ("so \\(x^2\\) is", "so $x^2$ is"),
        ("\\[ a + b \\]", "$$\na + b\n$$"),
        ("$$a + b$$", "$$\na + b\n$$"),
        ("a sum $$a + b$$ in a line", "a sum $$a + b$$ in a line"),
        ("$\\frac{1}{2}$ of $x$", "$\\frac{1}{2}$ of $x$"),
        ("an open $x", "an open \\$x"),
        ("`$5` and \\$6", "`$5` and \\$6"),
        (
            "```sh\necho $HOME $PATH \\(x\\)\n```\nthen $1 and $2",
            "```sh\necho $HOME $PATH \\(x\\)\n```\nthen \\$1 and \\$2",
        ),
        ("```sh\necho $HOME", "```sh\necho $HOME"),
        ("~~~~\n$a$ ```\n~~~~\n![pic](http://x/y.png)", "~~~~\n$a$ ```\n~~~~\n[pic](http://x/y.png)"),
        ("wow! [a](b) ![c]", "wow! [a](b) ![c]"),
        ("", ""),
    ],
)
def test_formulas_prices_pictures_and_code_become_what_the_page_reads(written: str, expected: str) -> None:
    assert shown(written) == expected


def test_a_long_answer_of_opening_marks_takes_no_time() -> None:
    for mark in ("$", "`", "\\(", "\\[", "![", "```\n", "$$"):
        assert len(shown(mark * 4000)) >= 4000
