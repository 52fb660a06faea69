"""From the Messages API's request to the chat request that it means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from firsttoken.server.error_handlers import wrong_value
from firsttoken.server.schemas.messages import MessagesRequest, PromptFields, ToolChoice, TurnMessage
from firsttoken.server.translation import Translation

Block = dict[str, Any]

_NAMES = {
    "stop": "stop_sequences",
    "continue_final_message": "messages",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_JSON = json.JSONEncoder(ensure_ascii=False).encode


def as_chat(body: PromptFields, given: Mapping[str, Any]) -> Translation:
    """`given` is the request as it was sent, from which `body` was made. Raises InvalidRequest."""
    made = Translation.of(given, dict(_NAMES))
    if body.system:
        made.say({"role": "system", "content": _texts(body.system)}, "system")
    for place, message in enumerate(body.messages):
        for part in _parts(message):
            made.say(part, f"messages[{place}]", tool_call_id="content", tool_calls="content")
    if made.messages[-1]["role"] == "assistant":
        if "tool_calls" in made.messages[-1]:
            where = f"messages[{len(body.messages) - 1}].content"
            raise wrong_value(where, "a tool_use needs its tool_result in a message after it")
        made.fields["continue_final_message"] = True
    for place, tool in enumerate(body.tools or ()):
        origin = f"tools[{place}]"
        made.names[f"{origin}.function.parameters"] = f"{origin}.input_schema"
        rest = {"description": tool.description, "parameters": tool.input_schema, "strict": tool.strict}
        made.tool(tool.name, rest, origin)
    if body.tool_choice is not None:
        made.fields |= _tool_choice(body.tool_choice)
    if body.thinking is not None and body.thinking.type == "disabled":
        made.fields["chat_template_kwargs"] = {"enable_thinking": False}
    if body.output_config is not None and body.output_config.format is not None:
        schema = {"name": "answer", "schema": body.output_config.format.json_schema, "strict": True}
        made.fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if isinstance(body, MessagesRequest):
        made.fields["max_tokens"] = body.max_tokens
        if body.stop_sequences:
            made.fields["stop"] = body.stop_sequences
    return made


def _parts(message: TurnMessage) -> Iterator[dict[str, Any]]:
    """One message of each role that a turn's blocks stand for: results of tools have one of their own in a chat."""
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
        return
    if message.role == "assistant":
        yield _assistant(message.content)
        return
    texts: list[Block] = []
    for block in message.content:
        if block["type"] == "text":
            texts.append(block)
            continue
        if texts:
            yield {"role": message.role, "content": _texts(texts)}
            texts = []
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _result(block)}
    if texts or not message.content:
        yield {"role": message.role, "content": _texts(texts)}


def _assistant(blocks: list[Block]) -> dict[str, Any]:
    said = _texts([block for block in blocks if block["type"] == "text"])
    message: dict[str, Any] = {"role": "assistant", "content": said}
    thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": _JSON(call["input"])},
            }
            for call in calls
        ]
    return message


def _texts(content: str | list[Block]) -> Any:
    """The blocks without what is said beside their text (`cache_control`, ...)."""
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": block["text"]} for block in content]


def _result(block: Block) -> Any:
    """What a tool gave. A chat has no field for its failure, so the text says it."""
    content = _texts(block.get("content") or "")
    if not block.get("is_error"):
        return content
    return f"Error: {content}" if isinstance(content, str) else [{"type": "text", "text": "Error:"}, *content]


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if choice.type == "tool":
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        fields["tool_choice"] = _CHOICES[choice.type]
    if choice.disable_parallel_tool_use is not None:
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields
