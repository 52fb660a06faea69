"""Needle in a haystack: a number is hidden in a long text and asked for at its end."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

DEPTHS = (0.1, 0.5, 0.9)  # of the text before the needle
ANSWER_TOKENS = 12
_PLACES = ("harbour", "old mill", "north gate")
_RESERVE = 8  # tokens by which joined parts may differ from the sum of theirs


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text that ends where the hidden number is to follow."""

    text: str
    number: str

    def found_in(self, answer: str) -> bool:
        return self.number in answer


def prompts(haystack: Sequence[str], length: int, count: Callable[[str], int]) -> list[Prompt]:
    """One prompt a depth, each of at most `length` tokens as `count` tells them. The haystack repeats where it must."""
    sentences = [part for text in haystack for part in re.split(r"(?<=[.!?])\s+", text) if part]
    sizes = [count(f" {sentence}") for sentence in sentences]
    draw = random.Random(length)
    made: list[Prompt] = []
    for depth, place in zip(DEPTHS, _PLACES, strict=True):
        number = str(draw.randrange(10_000, 100_000))
        needle = f"The secret number of the {place} is {number}."
        question = f"\n\nOnce more, as it was said above: the secret number of the {place} is"
        room = length - count(needle) - count(question) - _RESERVE
        chosen: list[str] = []
        while room >= sizes[len(chosen) % len(sizes)]:
            room -= sizes[len(chosen) % len(sizes)]
            chosen.append(sentences[len(chosen) % len(sentences)])
        chosen.insert(round(depth * len(chosen)), needle)
        made.append(Prompt(" ".join(chosen) + question, number))
    return made
