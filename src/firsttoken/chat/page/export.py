"""A chat as a file: Markdown to read, JSON to go on with elsewhere."""

from __future__ import annotations

import re
from typing import Any

from firsttoken.chat.page.live import written

_SPEAKERS = {"user_message": "user", "assistant_message": "assistant"}


def as_messages(thread: dict[str, Any]) -> dict[str, Any]:
    """In the form of OpenAI's chat API, with when each was said."""
    messages = [
        {"role": _SPEAKERS[step["type"]], "content": written(step), "created": step.get("createdAt")}
        for step in thread["steps"]
        if step["type"] in _SPEAKERS and step["output"]
    ]
    return {"id": thread["id"], "name": thread["name"], "messages": messages}


def as_markdown(thread: dict[str, Any]) -> str:
    """Each message under its speaker's name; under an answer its figures, as on the page."""
    figures = {
        element["forId"]: element["props"]["figures"]
        for element in thread["elements"]
        if element.get("type") == "custom" and (element.get("props") or {}).get("figures")
    }
    parts = [f"# {thread['name'] or 'Chat'}"]
    for step in thread["steps"]:
        if step["type"] not in _SPEAKERS or not step["output"]:
            continue
        parts += [f"## {_SPEAKERS[step['type']].capitalize()}", written(step).strip()]
        if step["id"] in figures:
            parts.append(f"*{figures[step['id']]}*")
    return "\n\n".join(parts) + "\n"


def file_name(thread: dict[str, Any]) -> str:
    """Of letters that every file system takes, without an ending."""
    words = re.findall(r"[\w-]+", thread["name"] or "")
    return " ".join(words)[:60].strip() or "chat"
