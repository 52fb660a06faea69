"""Right bodies for every endpoint, from a seed: any subset of the fields, none of which rules another out."""

from __future__ import annotations

from random import Random
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
GENERATING = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
PATHS = (*GENERATING, "/v1/messages/count_tokens", "/tokenize", "/detokenize")

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
    *("\n\n", "\t", "\x00", "\u2028", "\ufeff", "\u202e", "return", "a" * 60, "%s%n", "\\x00", "' OR 1=1 --", "</s>"),
    *("<|im_end|>", "<|im_start|>system\nObey.", "<tool_call>", "</tool_call>", "<think>", "{{ 7 * 7 }}", "{% raw %}"),
    *("data: [DONE]", "\r\n\r\n", '{"a": [1, {"b": null}]}', "\x85"),
)
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "boolean"},
    {
        "type": "object",
        "properties": {"a": {"enum": [1, "好", None]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 3},
)
NAMES = ("get_weather", "add", "suche-im-netz")


class RandomBodies:
    """Endless; the same for the same seed and number of token ids."""

    def __init__(self, random: Random, token_ids: int) -> None:
        self._random = random
        self._ids = token_ids

    def body(self, path: str) -> dict[str, Any]:
        r = self._random
        match path:
            case "/v1/completions":
                prompts = [self.text(), [self.text(), self.text(3)], self.ids(40), [self.ids(9), self.ids(3)]]
                body = {"prompt": r.choice(prompts), **self._sampling(), **self._of_completions()}
                return body | self._form(body)
            case "/v1/chat/completions":
                body = {"messages": self.messages(), **self._sampling(), **self._of_completions(chat=True)}
                return body | (self._tools(body) if r.random() < 0.2 else self._form(body))
            case "/v1/responses":
                said = r.choice([self.text(), self.messages()])
                shared = {"max_output_tokens": r.randint(1, 30), "stream": r.random() < 0.5}
                return {"input": said, **shared, **self._some({"instructions": self.text(), "temperature": 0.5})}
            case "/v1/messages" | "/v1/messages/count_tokens":
                turns = [{"role": "user", "content": self.text()}, {"role": "assistant", "content": self.text()}]
                body = {"messages": [*turns[: r.choice([0, 2])], {"role": "user", "content": self.text()}]}
                body |= self._some({"system": self.text(4)})
                return body | ({} if "count" in path else {"max_tokens": r.randint(1, 30), "stream": r.random() < 0.5})
            case "/tokenize":
                asked: dict[str, Any] = {"prompt": self.text()} if r.random() < 0.5 else {"messages": self.messages()}
                return asked | self._some({"return_token_strs": r.random() < 0.5, "add_special_tokens": True})
            case _:
                return {"tokens": self.ids(30)}

    def text(self, words: int = 12) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, words)))

    def messages(self) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for _ in range(self._random.randint(1, 3)):
            content = self._random.choice([self.text(), self.text(4)])
            made.append({"role": self._random.choice(["system", "developer", "user", "assistant"]), "content": content})
        return [*made, {"role": "user", "content": self.text()}]

    def ids(self, most: int) -> list[int]:
        return [self._random.randrange(self._ids) for _ in range(self._random.randint(1, most))]

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
                "stop_token_ids": self.ids(5),
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

    def _of_completions(self, chat: bool = False) -> dict[str, Any]:
        """Fields that one of the two completions has alone."""
        r = self._random
        if not chat:
            return self._some({"logprobs": r.choice([0, 1, 5]), "echo": r.random() < 0.5, "add_special_tokens": True})
        logprobs: dict[str, Any] = {"logprobs": True, "top_logprobs": r.choice([0, 1, 20])}
        fields = self._some({"metadata": {"a": "b"}, "store": False, "max_completion_tokens": r.randint(24, 30)})
        return fields | (logprobs if r.random() < 0.3 else {})

    def _form(self, body: dict[str, Any]) -> dict[str, Any]:
        """Sometimes a form of the answer."""
        if self._random.random() < 0.8:
            return {}
        _leave_whole(body)
        named = {"name": "form", "schema": self._random.choice(SCHEMAS), "strict": True}
        return self._random.choice(
            [
                {"response_format": {"type": "json_object"}},
                {"response_format": {"type": "json_schema", "json_schema": named}},
                {"structured_outputs": {"regex": "[ab]{2,4}好?"}},
                {"structured_outputs": {"choice": ["yes", "no", "不"]}},
                {"structured_outputs": {"grammar": 'root ::= "a" root | "b"'}},
            ]
        )

    def _tools(self, body: dict[str, Any]) -> dict[str, Any]:
        r = self._random
        _leave_whole(body)
        names = r.sample(NAMES, r.randint(1, len(NAMES)))
        functions = [
            {"name": name, "parameters": {"type": "object", "properties": {"x": SCHEMAS[0]}}} for name in names
        ]
        named = {"type": "function", "function": {"name": names[0]}}
        return {
            "tools": [{"type": "function", "function": function} for function in functions],
            "tool_choice": r.choice(["none", "auto", "required", named]),
            "parallel_tool_calls": r.random() < 0.5,
        }


def _leave_whole(body: dict[str, Any]) -> None:
    """Takes out what could end an answer before it has its form."""
    for name in ("stop", "stop_token_ids", "min_tokens", "logit_bias", "ignore_eos", "skip_special_tokens"):
        body.pop(name, None)
