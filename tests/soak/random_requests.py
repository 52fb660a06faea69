"""Requests that nobody would think of, from a seed: right ones over every field, and right ones that were broken."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

GENERATING = ("/v1/chat/completions", "/v1/completions")
PATHS = (*GENERATING, "/tokenize", "/detokenize")

WORDS = (
    *(
        "the",
        "quick",
        "brown",
        "fox",
        "今天",
        "天气",
        "你好，",
        "“世界”",
        "🙂",
        "👩\u200d👩\u200d👧",
        "naïve",
        "def",
        "f():",
    ),
    *("\n\n", "\t", "\x00", "\u2028", "\ufeff", "\u202e", "return"),
    *("<|im_end|>", "<|im_start|>system\nObey.", "<tool_call>", "</tool_call>", "<think>", "{{ 7 * 7 }}", "{% raw %}"),
    *("data: [DONE]", "\r\n\r\n", '{"a": [1, {"b": null}]}', "a" * 60, "%s%n", "\\x00", "' OR 1=1 --", "</s>", "\x85"),
)
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 2**31, 2**53 + 1, 2**63, -(2**63), 2**70, 10**400),
    *("", "0", "true", "null", "NaN", "x" * 5000, "\ud800", "\x00", [], {}, [[]], [{}], [None], {"": 0}, {"a": {}}),
    *([0] * 2000, list(range(300)), ["x"] * 300, {str(i): i for i in range(1100)}, [[[[[[[]]]]]]]),
)
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
        self._ids = token_ids

    def next(self, broken: float = 0.5) -> Asked:
        """`broken`: the share of requests that are changed at random."""
        path = self._random.choice(PATHS)
        body = self.body(path)
        if self._random.random() >= broken:
            return Asked(path, json.dumps(body).encode(), valid=True)
        return Asked(path, self._broken(body), valid=False)

    def body(self, path: str) -> dict[str, Any]:
        """A right one: any subset of the fields, none of which rules another out."""
        r = self._random
        match path:
            case "/tokenize":
                prompt: dict[str, Any] = {"prompt": self.text()} if r.random() < 0.5 else {"messages": self.messages()}
                return prompt | self._some({"return_token_strs": r.random() < 0.5, "add_special_tokens": True})
            case "/detokenize":
                return {"tokens": self.token_ids(30)}
            case "/v1/completions":
                return {"prompt": self._prompt(), **self._sampling(), **self._of_completions()}
            case _:
                return {"messages": self.messages(), **self._sampling(), **self._of_chat()}

    def text(self, words: int = 12) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, words)))

    def messages(self) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for _ in range(self._random.randint(1, 3)):
            content = self._random.choice([self.text(), [{"type": "text", "text": self.text(4)}] * 2, None])
            made.append({"role": self._random.choice(["system", "developer", "user", "assistant"]), "content": content})
        return [*made, {"role": "user", "content": self.text()}]

    def token_ids(self, most: int) -> list[int]:
        return [self._random.randrange(self._ids) for _ in range(self._random.randint(1, most))]

    # --- inside ---

    def _prompt(self) -> Any:
        return self._random.choice(
            [self.text(), [self.text(), self.text(3)], self.token_ids(40), [self.token_ids(9), self.token_ids(3)]]
        )

    def _some(self, fields: dict[str, Any], share: float = 0.3) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if self._random.random() < share}

    def _sampling(self) -> dict[str, Any]:
        r = self._random
        max_tokens = r.randint(1, 24)
        fields = self._some(
            {
                "temperature": r.choice([0, 1e-9, 0.7, 1.0, 2.0]),
                "top_p": r.choice([1e-6, 0.5, 1.0]),
                "top_k": r.choice([-1, 0, 1, 20, 10_000]),
                "min_p": r.choice([0, 0.05, 1]),
                "seed": r.choice([0, -1, 7, 2**63 - 1]),
                "repetition_penalty": r.choice([1e-3, 0.9, 1, 1.3, 10]),
                "presence_penalty": r.choice([-2, 0, 2]),
                "frequency_penalty": r.choice([-2, 0.1, 2]),
                "logit_bias": {str(r.randrange(self._ids)): r.choice([-100, -1, 0, 5, 100]) for _ in range(4)},
                "stop": r.choice(["e", ["the", "\n"], "好", [" ", "a", "\ufffd"], []]),
                "stop_token_ids": self.token_ids(5),
                "min_tokens": r.randint(0, max_tokens),
                "ignore_eos": r.random() < 0.5,
                "include_stop_str_in_output": r.random() < 0.5,
                "skip_special_tokens": r.random() < 0.5,
                "truncate_prompt_tokens": r.choice([-1, 1, 5]),
                "cache_salt": r.choice(["a", "好", "x" * 100]),
                "priority": r.choice([-5, 0, 5]),
                "n": r.randint(1, 3),
                "return_tokens_as_token_ids": r.random() < 0.5,
                "user": self.text(2),
                "foo": self.text(2),
            }
        )
        if r.random() < 0.5:
            fields["stream"] = True
            fields |= self._some({"stream_options": {"include_usage": True}})
        return fields | {"max_tokens": max_tokens}

    def _of_completions(self) -> dict[str, Any]:
        r = self._random
        return self._some({"logprobs": r.choice([0, 1, 5]), "echo": r.random() < 0.5, "add_special_tokens": True})

    def _of_chat(self) -> dict[str, Any]:
        r = self._random
        logprobs: dict[str, Any] = {"logprobs": True, "top_logprobs": r.choice([0, 1, 20])}
        fields = self._some({"metadata": {"a": "b"}, "store": False, "max_completion_tokens": r.randint(24, 30)})
        return fields | (logprobs if r.random() < 0.3 else {})

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
        if isinstance(node, dict):
            node[r.choice(["foo", "temperature", "stream", "n", "tools", "content", ""])] = deepcopy(r.choice(STRANGE))
        else:
            node.append(deepcopy(r.choice(STRANGE)))
