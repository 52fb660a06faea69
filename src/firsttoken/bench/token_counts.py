"""How many tokens each chunk of an answer carried, where the server does not say it chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from firsttoken.errors import ConfigError

TokenEnds = Callable[[str], list[int]]
"""Character positions in a text after which its tokens end, ascending."""


def spread(total: int, texts: Sequence[str]) -> list[int]:
    """`total` tokens over chunks: one each, and what is left in proportion to the characters.

    One token more than chunks is an end token, which has no text: every chunk then has one. With fewer tokens than
    chunks some have none.
    """
    count = len(texts)
    if count == 0 or total - count in (0, 1):
        return [1] * count
    floor = 1 if total > count else 0
    rest = total - floor * count
    lengths = [max(len(text), 1) for text in texts]
    ends = [round(rest * sofar / sum(lengths)) for sofar in accumulate(lengths)]
    return [floor + end - start for start, end in zip([0, *ends], ends, strict=False)]


def count_by_ends(texts: Sequence[str], ends: Sequence[int]) -> list[int]:
    """A token belongs to the chunk in which its last character came."""
    counts: list[int] = []
    position = 0
    token = 0
    for text in texts:
        position += len(text)
        first = token
        while token < len(ends) and ends[token] <= position:
            token += 1
        counts.append(token - first)
    return counts


def token_ends_of(path: Path) -> TokenEnds:
    """Reads a tokenizer.json. Raises ConfigError where it is none."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ConfigError(f"--tokenizer {path} is not a tokenizer.json that can be read: {error}") from None
    return lambda text: [end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets]
