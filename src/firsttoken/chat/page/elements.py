"""The page's own elements, as Chainlit's browser code takes them; assets/*.jsx draw them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from firsttoken.chat.language import Language
from firsttoken.chat.page import words
from firsttoken.chat.page.store import Row


def foot(
    step: Row,
    language: Language,
    *,
    figures: str = "",
    notices: list[str] | None = None,
    error: str = "",
    thought: str = "",
) -> Row:
    """What stands under an answer: its figures, what there is to say about it, and what can be done with it."""
    labels = {
        "copy": words.COPY,
        "copied": words.COPIED,
        "again": words.RETRY if error else words.AGAIN,
        "export": words.EXPORT,
        "thinking": words.THINKING,
    }
    props: dict[str, Any] = {
        "figures": figures,
        "notices": notices or [],
        "error": error,
        "thought": thought,
        "labels": {name: label.text(language) for name, label in labels.items()},
        "message": step["id"],
        "thread": step["threadId"],
    }
    return _element("AnswerFoot", step, props)


def waiting(step: Row, text: str, fraction: float | None, thought: str = "") -> Row:
    """What is shown in an answer's place while there is none: why, and how far it is, 0 to 1."""
    return _element("Waiting", step, {"text": text, "fraction": fraction, "thought": thought}) | {
        "id": f"waiting-{step['id']}"  # always the same: a newer one takes its place
    }


def _element(name: str, step: Row, props: Row) -> Row:
    return {
        "id": str(uuid4()),
        "threadId": step["threadId"],
        "forId": step["id"],
        "type": "custom",
        "name": name,
        "display": "inline",
        "mime": "application/json",
        "url": None,
        "chainlitKey": None,
        "props": props,
    }
