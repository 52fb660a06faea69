from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, pre_tokenizers

from firsttoken.segment_encoder import SegmentEncoder, as_continuation, as_text_only


class CountingEncoder:
    """The text-only tokeniser, which notes what it is asked to encode."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.inner = as_text_only(backend)
        self.seen: list[str] = []

    def encode_batch_fast(self, texts: Sequence[str], add_special_tokens: bool) -> Any:
        self.seen += texts
        return self.inner.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


@pytest.fixture(scope="module")
def backend(sentencepiece_folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(sentencepiece_folder / "tokenizer.json"))


def make(backend: tokenizers.Tokenizer, **options: int) -> tuple[SegmentEncoder, CountingEncoder]:
    counting = CountingEncoder(backend)
    added = backend.get_added_tokens_decoder()
    return SegmentEncoder(backend, counting, added, **options), counting  # type: ignore[arg-type]  # a fake


def test_an_unchanged_segment_is_encoded_once(backend: tokenizers.Tokenizer) -> None:
    encoder, counting = make(backend)
    history = "<s>hello</s><s>world</s>"
    first = encoder.encode(encoder.split(history))
    again = encoder.encode(encoder.split(history + "<s>new</s>"))
    assert again[: len(first)] == first == backend.encode(history, add_special_tokens=False).ids
    assert counting.seen == ["hello", "world", "new"]


def test_the_cache_is_bounded_and_drops_what_was_used_least_recently(backend: tokenizers.Tokenizer) -> None:
    encoder, counting = make(backend, cache_bytes=1000)  # about three short texts
    for text in ("a", "b", "c", "a", "d", "a", "b"):
        encoder.encode(["", "<s>", text])
    assert counting.seen == ["a", "b", "c", "d", "b"]


def test_a_text_larger_than_the_cache_is_encoded_all_the_same(backend: tokenizers.Tokenizer) -> None:
    encoder, counting = make(backend, cache_bytes=400)
    text = "hello world" * 50
    assert encoder.encode([text]) == encoder.encode([text]) == backend.encode(text, add_special_tokens=False).ids
    assert counting.seen == [text, text]


def test_threads_share_the_cache(backend: tokenizers.Tokenizer) -> None:
    encoder, _ = make(backend, cache_bytes=2000)
    text = "".join(f"<s>hello {'ab'[turn % 2] * turn}</s>" for turn in range(20))
    expected = backend.encode(text, add_special_tokens=False).ids
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.extend(encoder.encode(encoder.split(text)) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 80


def test_special_tokens_that_eat_whitespace_do_so() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, " ": 1, "b": 2}, []))
    backend.add_tokens([AddedToken("<e>", special=True, rstrip=True, lstrip=True, normalized=False)])
    encoder = SegmentEncoder(backend, as_text_only(backend), backend.get_added_tokens_decoder())
    text = "a <e>  b <e>"
    assert encoder.encode(encoder.split(text)) == backend.encode(text).ids == [0, 3, 2, 3]


@pytest.mark.parametrize("nested", [True, False])
def test_only_the_beginning_of_a_text_gets_a_space_where_the_tokeniser_says_first(nested: bool) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"▁": 0, "a": 1, "b": 2, "▁a": 3}, [("▁", "a")]))
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.pre_tokenizer = pre_tokenizers.Sequence([metaspace]) if nested else metaspace
    backend.add_tokens([AddedToken("<e>", special=True, normalized=False)])
    assert as_continuation(backend) is not None
    encoder = SegmentEncoder(backend, as_text_only(backend), backend.get_added_tokens_decoder())
    for text in ("a<e>a<e>", "<e>a a", "a b"):
        assert encoder.encode(encoder.split(text)) == backend.encode(text).ids
    assert encoder.encode(encoder.split("a<e>a")) == [3, 4, 1]
