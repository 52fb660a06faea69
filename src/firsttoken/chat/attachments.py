"""Files that may go with a question: text, of a bounded size, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LARGEST = 512 * 1024  # bytes of one file
MOST = 8  # files of one question

_LANGUAGES = {"py": "python", "pyi": "python", "js": "javascript", "ts": "typescript", "rs": "rust", "sh": "bash",
              "md": "markdown", "yml": "yaml", "h": "c", "cc": "cpp", "hpp": "cpp", "rb": "ruby", "kt": "kotlin",
              "txt": "", "log": ""}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attachment:
    name: str
    text: str


def read(content: bytes) -> str | None:
    """The text of a file; None where it is none. Every text encoding in wide use is tried, strictest first."""
    if content[:4].startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif b"\0" in content:
        return None
    else:
        encodings = ["utf-8-sig", "gb18030"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        # Binary data that happens to decode is full of control characters.
        strange = sum(ord(character) < 32 and character not in "\t\n\r\f\x1b" for character in text)
        return None if strange > len(text) / 100 else text.replace("\r\n", "\n")
    return None


def with_attachments(question: str, attachments: Sequence[Attachment]) -> str:
    """The files first, each named and fenced, then the question: so that a follow-up about them shares the prefix."""
    return "\n\n".join([*(_block(one) for one in attachments), question]).strip()


def _block(attachment: Attachment) -> str:
    ending = attachment.name.rsplit(".", 1)[-1].lower() if "." in attachment.name else ""
    fence = "```"
    while fence in attachment.text:
        fence += "`"
    return f"{attachment.name}\n{fence}{_LANGUAGES.get(ending, ending)}\n{attachment.text.rstrip()}\n{fence}"
