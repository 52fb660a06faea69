"""A request of another API as the chat request that it means, with its errors told in that API's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic

from firsttoken.errors import InvalidRequest
from firsttoken.server.parsing import JsonBody, Schema, check, off_loop_if_long
from firsttoken.server.schemas.chat import ChatRequest
from firsttoken.server.schemas.sampling import SamplingFields
from firsttoken.server.unsupported import CHAT, Neutral

_SAME = frozenset(SamplingFields.model_fields)


@dataclass(slots=True)
class Translation:
    """`fields` are a chat request's, as a client would send them; `names` tells what the client called them."""

    fields: dict[str, Any]
    names: dict[str, str] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = self.fields["messages"] = []

    @classmethod
    def of(cls, given: Mapping[str, Any], names: dict[str, str]) -> Translation:
        """Begins with the fields that mean the same in both."""
        return cls({name: value for name, value in given.items() if name in _SAME}, names)

    def say(self, message: dict[str, Any], origin: str, **names: str) -> None:
        """Adds a message that stands at `origin` in the client's request; `names` are of fields called otherwise."""
        place = f"messages[{len(self.messages)}]"
        self.names[place] = origin
        self.names.update({f"{place}.{field}": f"{origin}.{own}" for field, own in names.items()})
        self.messages.append(message)

    def tool(self, name: str, rest: Mapping[str, Any], origin: str) -> None:
        """Offers a function; of `rest` what is None was not given."""
        tools = self.fields.setdefault("tools", [])
        self.names[f"tools[{len(tools)}].function"] = origin
        function = {"name": name, **{key: value for key, value in rest.items() if value is not None}}
        tools.append({"type": "function", "function": function})

    def checked(self) -> ChatRequest:
        """Raises InvalidRequest, as a chat request would be refused."""
        with self.told_to_client():
            return check(ChatRequest, self.fields, CHAT, strict_fields=False).body

    @contextmanager
    def told_to_client(self) -> Iterator[None]:
        """An InvalidRequest that leaves it names the client's field."""
        try:
            yield
        except InvalidRequest as error:
            raise self._renamed(error) from None

    def _renamed(self, error: InvalidRequest) -> InvalidRequest:
        param = error.param or ""
        starts = [name for name in self.names if param == name or param.startswith((f"{name}.", f"{name}["))]
        if not starts:
            return error
        start = max(starts, key=len)
        own = self.names[start] + param[len(start) :]
        message = error.message.replace(f"'{param}'", f"'{own}'")
        if message.startswith(f"{param} "):
            message = own + message.removeprefix(param)
        return InvalidRequest(message, param=own, code=error.code)


@dataclass(frozen=True, slots=True)
class Translated(Generic[Schema]):
    """A request that was checked as what it is and as the chat request that it means."""

    body: Schema
    translation: Translation
    chat: ChatRequest
    headers: dict[str, str]  # for the response: names of ignored fields


async def translate(
    schema: type[Schema],
    given: JsonBody,
    known: Mapping[str, Neutral],
    as_chat: Callable[[Schema, Mapping[str, Any]], Translation],
    *,
    strict_fields: bool,
) -> Translated[Schema]:
    """Raises InvalidRequest, as `parse` does."""

    def work() -> Translated[Schema]:
        parsed = check(schema, given.fields, known, strict_fields=strict_fields)
        translation = as_chat(parsed.body, given.fields)
        return Translated(parsed.body, translation, translation.checked(), parsed.headers)

    return await off_loop_if_long(work, given)
