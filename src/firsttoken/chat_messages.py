"""Messages as OpenAI's API has them, made into what one chat template can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from firsttoken.chat_template import ChatTemplate
from firsttoken.errors import InvalidRequest

Message = dict[str, Any]


def messages_for(template: ChatTemplate, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """New messages; the caller's stay as they are. Raises InvalidRequest naming the message at fault.

    - Null fields are left out, null or absent content is "" (unless the template itself asks for null).
    - Content parts are joined by newlines, unless the template reads parts. Text content becomes one part where the
      template reads nothing else.
    - `developer` is `system`, `reasoning` is `reasoning_content`, unless the template knows better.
    - A tool call's arguments, JSON text in the API, become the object that most templates print.
    - Tools' results come in the order of the calls: most templates print no ids, so a model tells them by their place.
    """
    if not messages:
        raise InvalidRequest("messages must hold at least one message.", param="messages")
    return _results_as_called(
        [_message(template, message, f"messages[{place}]") for place, message in enumerate(messages)]
    )


def _results_as_called(messages: list[Message]) -> list[Message]:
    ordered: list[Message] = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        run = list(group)
        if is_result and ordered:
            calls = [call.get("id") for call in ordered[-1].get("tool_calls", ())]
            run.sort(
                key=lambda message: (
                    calls.index(called) if (called := message.get("tool_call_id")) in calls else len(calls)
                )
            )
        ordered += run
    return ordered


def _message(template: ChatTemplate, message: Mapping[str, Any], where: str) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidRequest(f"{where} must be an object with a role.", param=where)
    made = {key: value for key, value in message.items() if value is not None}
    if made["role"] == "developer" and not template.knows_developer:
        made["role"] = "system"
    if "reasoning" in made:
        made.setdefault("reasoning_content", made["reasoning"])
    made["content"] = _content(template, message.get("content"), where)
    if calls := made.pop("tool_calls", None):
        made["tool_calls"] = [_tool_call(template, call, f"{where}.tool_calls") for call in calls]
    return made


def _content(template: ChatTemplate, content: Any, where: str) -> Any:
    if content is None:
        return None if template.tests_null_content else ""
    if isinstance(content, str):
        return content if template.takes_text_content else [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidRequest(f"{where}.content must be text or a list of parts.", param=f"{where}.content")
    texts = [_part(part, where) for part in content]
    if template.iterates_content:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, Mapping) else None
    if kind not in ("text", "refusal") or not isinstance(text, str):
        raise InvalidRequest(
            f"{where}.content has a part of type {kind!r}; this model reads text alone.", param=f"{where}.content"
        )
    return text


def _tool_call(template: ChatTemplate, call: Any, where: str) -> Any:
    if not isinstance(call, Mapping):
        raise InvalidRequest(f"{where} must be a list of objects.", param=where)
    made = dict(call)
    if isinstance(made.get("function"), Mapping):
        made["function"] = _tool_call(template, made["function"], where)
    arguments = made.get("arguments")
    if isinstance(arguments, str) and not template.takes_text_arguments:
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError:
            return made  # a model's own broken JSON stays text
        if isinstance(parsed, dict):
            made["arguments"] = parsed
    return made
