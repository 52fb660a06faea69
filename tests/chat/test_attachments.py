"""Files that may go with a question."""

from __future__ import annotations

import pytest

from firsttoken.chat.attachments import Attachment, read, with_attachments


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_text_of_any_usual_encoding_is_read(encoding: str) -> None:
    assert read("print('你好')\r\nend".encode(encoding)) == "print('你好')\nend"


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xd8\xff\xe0" * 50, bytes(range(1, 32)) * 20])
def test_what_is_no_text_is_not_read(content: bytes) -> None:
    assert read(content) is None


def test_a_file_that_holds_fences_gets_a_longer_one() -> None:
    asked = with_attachments("Why?", [Attachment("a.md", "```py\nx\n```\n")])
    assert asked == "a.md\n````markdown\n```py\nx\n```\n````\n\nWhy?"


def test_without_files_a_question_stays_as_it_is() -> None:
    assert with_attachments("Why?", []) == "Why?"
