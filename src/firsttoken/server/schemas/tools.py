"""Tools that a request offers, and which of them must, may or may not be called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from firsttoken.server.limits import MAX_TOOL_NAME
from firsttoken.server.schemas.sampling import Fields

_NAME = re.compile(rf'[^\s"\\{{}}<>]{{1,{MAX_TOOL_NAME}}}')
_MODES = ("none", "auto", "required")
_CHOICES = 'expected "none", "auto", "required" or {"type": "function", "function": {"name": ...}}'


def _as_tool_name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            f"expected 1 to {MAX_TOOL_NAME} characters without whitespace, quotes, backslashes or any of <>{{}}"
        )
    return value


@dataclass(frozen=True, slots=True)
class NamedTool:
    """`tool_choice` where it is one function."""

    name: str


def _as_choice(value: Any) -> Any:
    if value is None or isinstance(value, str | NamedTool):
        if isinstance(value, str) and value not in _MODES:
            raise ValueError(_CHOICES)
        return value
    kind = value.get("type") if isinstance(value, dict) else None
    function = value.get("function") if isinstance(value, dict) else None
    if kind != "function" or not isinstance(function, dict):
        raise ValueError(_CHOICES)
    return NamedTool(_as_tool_name(function.get("name")))


ToolName = Annotated[str, BeforeValidator(_as_tool_name)]
ToolChoice = Annotated[
    Any,
    BeforeValidator(_as_choice),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": list(_MODES)},
                {
                    "type": "object",
                    "properties": {
                        "type": {"const": "function"},
                        "function": {
                            "type": "object",
                            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": MAX_TOOL_NAME}},
                            "required": ["name"],
                        },
                    },
                    "required": ["type", "function"],
                },
                {"type": "null"},
            ]
        }
    ),
]


def _as_parameters(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type", "object") != "object":
        raise ValueError("expected the JSON schema of an object")
    return value


class Function(Fields):
    model_config = ConfigDict(extra="allow")  # models' templates print what a function's author says of it

    name: ToolName = Field(
        description=f"1 to {MAX_TOOL_NAME} characters without whitespace, quotes, backslashes or any of `<>{{}}`."
    )
    description: str | None = Field(None, description="What the model is told of it.")
    parameters: Annotated[dict[str, Any] | None, BeforeValidator(_as_parameters)] = Field(
        None, description="The JSON schema of an object. Default: no arguments."
    )
    strict: bool | None = Field(None, description="Arguments always keep to the schema. Default: false.")


class Tool(Fields):
    type: Literal["function"] = "function"
    function: Function

    def for_template(self) -> dict[str, Any]:
        """In the order that models were trained on, whatever the client's."""
        function = self.function
        told = {
            "name": function.name,
            "description": function.description,
            "parameters": {"type": "object", "properties": {}} if function.parameters is None else function.parameters,
            **(function.model_extra or {}),
        }
        return {"type": "function", "function": {key: value for key, value in told.items() if value is not None}}
