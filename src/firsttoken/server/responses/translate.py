"""From the Responses API's request to the chat request that it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firsttoken.server.schemas.responses import FunctionTool, InputItem, ResponsesRequest
from firsttoken.server.translation import Translation

_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "reasoning_effort": "reasoning.effort",
}


def as_chat(body: ResponsesRequest, given: Mapping[str, Any]) -> Translation:
    """`given` is the request as it was sent, from which `body` was made."""
    made = Translation.of(given, dict(_NAMES))
    if body.instructions:
        made.say({"role": "system", "content": body.instructions}, "instructions")
    _add_items(made, body.input)
    _add_tools(made, body)
    plain = {
        "max_completion_tokens": body.max_output_tokens,
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": _response_format(given),
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
    }
    made.fields.update({name: value for name, value in plain.items() if value is not None})
    if body.wants_logprobs:
        made.fields |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    return made


def _add_items(made: Translation, items: Sequence[InputItem]) -> None:
    """What an assistant thought, said and called one after the other is one message of a chat."""
    thought = ""
    for place, item in enumerate(items):
        origin = f"input[{place}]"
        match item.type:
            case "reasoning":
                thought = _text(item.content)
                continue
            case "function_call_output":
                result = {"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)}
                made.say(result, origin, tool_call_id="call_id", content="output")
            case "function_call":
                function = {"name": item.name, "arguments": item.arguments}
                if not (made.messages and made.messages[-1]["role"] == "assistant"):
                    made.say({"role": "assistant", "content": None}, origin)
                calls = made.messages[-1].setdefault("tool_calls", [])
                calls.append({"id": item.call_id, "type": "function", "function": function})
            case "message":
                made.say({"role": item.role, "content": _content(item.content)}, origin)
        if thought and made.messages[-1]["role"] == "assistant":
            made.messages[-1]["reasoning_content"] = thought
        thought = ""


def _content(parts: Any) -> Any:
    if not isinstance(parts, list):
        return parts
    return [{"type": "text", "text": part["refusal" if part["type"] == "refusal" else "text"]} for part in parts]


def _text(parts: Any) -> str:
    return parts if isinstance(parts, str) else "\n".join(part["text"] for part in _content(parts) or ())


def _add_tools(made: Translation, body: ResponsesRequest) -> None:
    choice = body.tool_choice
    allowed: set[str] | None = None
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        allowed = {tool["name"] for tool in choice["tools"]}
        choice = choice["mode"]
    elif isinstance(choice, dict):
        choice = {"type": "function", "function": {"name": choice["name"]}}
    for place, tool in enumerate(body.tools or ()):
        if allowed is None or tool.name in allowed:
            made.tool(tool.name, _function(tool), f"tools[{place}]")
    if choice is not None:
        made.fields["tool_choice"] = choice


def _function(tool: FunctionTool) -> dict[str, Any]:
    return {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}


def _response_format(given: Mapping[str, Any]) -> dict[str, Any] | None:
    form = (given.get("text") or {}).get("format")
    if form is None or form["type"] != "json_schema":
        return form and {"type": form["type"]}
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}
