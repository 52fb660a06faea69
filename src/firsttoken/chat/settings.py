"""What goes with every request besides the messages. The fields' names are the API's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """None leaves a value to the server, which takes the model's recommended one."""

    temperature: float | None = None  # 0 is greedy
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None  # the longest answer
    seed: int | None = None
    json_schema: Mapping[str, Any] | None = None  # what the answer must conform to

    def body(self) -> dict[str, Any]:
        """The request's fields for what is set."""
        body = {field.name: getattr(self, field.name) for field in fields(self)}
        body["max_completion_tokens"] = body.pop("max_tokens")
        schema = body.pop("json_schema")
        if schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of a server's `/v1/models`."""

    name: str
    context: int | None = None  # tokens of prompt and answer together; None where the server does not tell
    recommended: Settings = Settings()  # what the server takes for what a request leaves out; None: not told

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Model:
        """Raises LookupError or TypeError for something that is no such entry."""
        context = entry.get("max_model_len")
        said = entry.get("default_sampling_params")
        known = {field.name for field in fields(Settings)}
        values = {name: value for name, value in said.items() if name in known} if isinstance(said, dict) else {}
        return cls(str(entry["id"]), context if isinstance(context, int) else None, Settings(**values))
