"""The page's own elements, as Chainlit's browser code takes them; assets/*.jsx draw them."""

from __future__ import annotations

from typing import Any

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


def growing(step: Row) -> Row:
    """Draws an answer while it is being written; its foot then takes its place."""
    return _element("Growing", step, {"message": step["id"]})


def _element(name: str, step: Row, props: Row) -> Row:
    return {
        "id": f"{step['id']}-foot",  # one for each answer: what comes later takes the place of what was
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
