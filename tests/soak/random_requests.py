"""Requests that nobody would think of, from a seed: right ones, and right ones that were broken."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.soak.random_bodies import PATHS, RandomBodies

STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 2**31, 2**53 + 1, 2**63, -(2**63), 2**70, 10**400),
    *("", "0", "true", "null", "NaN", "x" * 5000, "\ud800", "\x00", [], {}, [[]], [{}], [None], {"": 0}, {"a": {}}),
    *([0] * 2000, list(range(300)), ["x"] * 300, {str(i): i for i in range(1100)}, [[[[[[[]]]]]]]),
    *({"type": "text"}, {"type": "function", "function": {}}, {"$ref": "#"}, {"role": "user", "content": "x"}),
)
ADDED = ("foo", "temperature", "stream", "n", "tools", "tool_choice", "response_format", "guided_regex", "content", "")
BROKEN_BYTES = (b"", b"{", b"null", b"\xff", b'{"a":' * 300, b"[" * 300, b"\x00", b'"', b"}{", b"\xed\xa0\x80")


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    content: bytes
    valid: bool  # False: it may be anything

    @property
    def body(self) -> dict[str, Any]:
        """Of a valid one."""
        made: dict[str, Any] = json.loads(self.content)
        return made


class RandomRequests:
    """Endless; the same for the same seed and number of token ids."""

    def __init__(self, seed: int, token_ids: int) -> None:
        self._random = Random(seed)
        self.bodies = RandomBodies(self._random, token_ids)

    def next(self, broken: float = 0.5) -> Asked:
        """`broken`: the share of requests that are changed at random."""
        path = self._random.choice(PATHS)
        body = self.bodies.body(path)
        if self._random.random() >= broken:
            return Asked(path, json.dumps(body).encode(), valid=True)
        return Asked(path, self._broken(body), valid=False)

    def _broken(self, body: dict[str, Any]) -> bytes:
        r = self._random
        content = json.dumps(body).encode()
        match r.randrange(8):
            case 0:
                return r.choice(BROKEN_BYTES)
            case 1:
                return content[: r.randrange(len(content))]
            case 2:
                at = r.randrange(len(content))
                return content[:at] + bytes([r.randrange(256)]) + content[at + 1 :]
            case 3:
                return b"[" + content + b"]"
            case _:
                for _ in range(r.randint(1, 3)):
                    self._change(body)
                return json.dumps(body).encode()

    def _change(self, node: Any) -> None:
        """Replaces, drops or adds something, anywhere in it."""
        r = self._random
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys or r.random() < 0.1:
                break
            key = r.choice(keys)
            if isinstance(node[key], dict | list) and r.random() < 0.6:
                node = node[key]
                continue
            if r.random() < 0.2:
                del node[key]
            else:
                node[key] = deepcopy(r.choice(STRANGE))
            return
        strange = deepcopy(r.choice(STRANGE))
        if isinstance(node, dict):
            node[r.choice(ADDED)] = strange
        else:
            node.append(strange)
