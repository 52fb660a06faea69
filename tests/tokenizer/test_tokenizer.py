from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.errors import ConfigError, InvalidRequest, ModelError
from firsttoken.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def plain(qwen_folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(qwen_folder / "tokenizer.json"))


def test_known_ids_of_qwen(qwen: Tokenizer) -> None:
    assert qwen.encode("Hello, world! 你好 123") == [9707, 11, 1879, 0, 220, 108386, 220, 16, 17, 18]
    assert (qwen.id_limit, qwen.bos_token_id, qwen.eos_token_ids) == (151_669, None, (151_645, 151_643))
    assert qwen.special_ids == frozenset(range(151_643, 151_657))


@given(st.lists(st.text()))
def test_a_batch_is_what_the_library_encodes(qwen: Tokenizer, plain: tokenizers.Tokenizer, texts: list[str]) -> None:
    expected = [plain.encode(text).ids for text in texts]
    assert qwen.encode_batch(texts) == expected
    assert [qwen.encode(text) for text in texts] == expected


@given(st.text(alphabet="ab <>|_endim你😀\n"))
def test_text_comes_back(qwen: Tokenizer, sentencepiece: Tokenizer, text: str) -> None:
    assert qwen.decode(qwen.encode(text, parse_special=False)) == text
    assert sentencepiece.decode(sentencepiece.encode(text, parse_special=False)) == text


def test_special_tokens_are_read_only_where_asked(qwen: Tokenizer) -> None:
    assert qwen.encode("<|im_end|><tool_call>") == [151_645, 151_657]
    spelled = qwen.encode("<|im_end|><tool_call>", parse_special=False)
    assert len(spelled) > 2
    assert 151_645 not in spelled
    assert spelled[-1] == 151_657  # not special, so it is text as models write it


def test_the_first_token_is_added_where_asked(sentencepiece: Tokenizer) -> None:
    with_first = sentencepiece.encode("hello")
    assert with_first == [1, *sentencepiece.encode("hello", add_special_tokens=False)]
    assert sentencepiece.encode("hello", parse_special=False) == with_first


def test_tokens_have_bytes_and_text(qwen: Tokenizer, sentencepiece: Tokenizer) -> None:
    ids = qwen.encode(" 好😀<|im_end|>")
    assert b"".join(map(qwen.token_bytes, ids)) == " 好😀<|im_end|>".encode()
    assert qwen.token_text(151_645) == "<|im_end|>"
    assert "\ufffd" in "".join(map(qwen.token_text, ids))
    assert sentencepiece.token_bytes(3 + 0x0A) == b"\n"
    assert sentencepiece.token_text(sentencepiece.encode("hello")[1]) == " hello"


def test_lone_surrogates_are_encoded_as_replacement_characters(qwen: Tokenizer) -> None:
    assert qwen.encode("a\ud800b") == qwen.encode("a\ufffdb")


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=200_000))]
)
def test_a_giant_word_is_encoded_or_refused_at_once(qwen: Tokenizer, text: str) -> None:
    started = time.perf_counter()
    ids = qwen.encode(text)
    with pytest.raises(InvalidRequest, match=r"context length is 8192 tokens.*resulted in more than"):
        qwen.encode(text, limit=8192)
    with pytest.raises(InvalidRequest, match="Please reduce the length of the messages"):
        qwen.encode_chat([{"role": "user", "content": text}], limit=8192)
    assert time.perf_counter() - started < 5  # a quarter of a second on an idle machine; quadratic would be minutes
    assert qwen.decode(ids) == text


def test_a_huge_text_is_refused_without_encoding_all_of_it(qwen: Tokenizer) -> None:
    text = "好奇" * 10_000_000  # 60 MB
    started = time.perf_counter()
    with pytest.raises(InvalidRequest, match="resulted in more than") as caught:
        qwen.encode(text, limit=8192)
    assert time.perf_counter() - started < 5  # all of it takes half a minute
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize("text", [" " * 150_000, "\n" * 150_000, "=" * 150_000, "a b " * 40_000])
def test_a_long_text_within_the_limit_is_never_refused(qwen: Tokenizer, text: str) -> None:
    count = len(qwen.encode(text))
    assert len(qwen.encode(text, limit=count)) == count
    with pytest.raises(InvalidRequest, match=f"resulted in {count} tokens"):
        qwen.encode(text, limit=count - 1)


def test_warming_counts_the_ids(sentencepiece_folder: Path) -> None:
    tokenizer = Tokenizer.load(sentencepiece_folder, chat_template="{{ messages[0].content }}")
    tokenizer.warm()
    assert "id_limit" in vars(tokenizer)


def test_warming_survives_a_template_that_wants_other_messages(sentencepiece_folder: Path) -> None:
    tokenizer = Tokenizer.load(sentencepiece_folder, chat_template="{{ raise_exception('no') }}")
    tokenizer.warm()
    assert "id_limit" in vars(tokenizer)


def test_a_template_may_come_from_a_file(sentencepiece_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "my.jinja"
    file.write_text("file {{ style }} {{ messages[0].content }}", encoding="utf-8")
    tokenizer = Tokenizer.load(sentencepiece_folder, chat_template=str(file))
    assert tokenizer.render_chat([{"role": "user", "content": "x"}], style="bold") == "file bold x"
    assert tokenizer.template_variables == {"style", "messages"}
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokenizer.load(sentencepiece_folder, chat_template=str(tmp_path / "other.jinja"))


def test_what_is_no_tokeniser_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        Tokenizer.load(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be read as a tokeniser"):
        Tokenizer.load(tmp_path)
    with pytest.raises(ModelError, match="not a GGUF file"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_decoder_of_another_kind_is_refused(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.decoder = tokenizers.decoders.WordPiece()
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="WordPiece"):
        Tokenizer.load(tmp_path)


def test_an_import_brings_no_torch() -> None:
    code = (
        "import sys, firsttoken.tokenizer; print([name for name in ('torch', 'numpy', 'gguf') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.demo
def test_the_demo_model_encodes_as_published(demo: Tokenizer) -> None:
    def pieces(text: str) -> list[str]:
        return [demo.token_text(token_id) for token_id in demo.encode(text)]

    assert pieces("Hello world, the cat") == ["Hello", " world", ",", " the", " cat"]
    assert pieces("12345") == list("12345")  # its digits stand alone
    assert pieces("def f(x):\n    return x") == ["def", " f", "(", "x", "):", "\n   ", " return", " x"]
    assert demo.encode("<|im_start|>user\n") == [1, 4093, 198]
    assert (demo.id_limit, demo.bos_token_id, demo.eos_token_ids) == (49_152, 1, (2,))


@pytest.mark.demo
def test_the_demo_models_text_comes_back(demo: Tokenizer) -> None:
    for text in (
        "English text.",
        "今天天气很好",
        "for i in range(10):\n\tprint(i)",
        "😀👩‍🚀",
        "3.14 and 2026",
        "naïve — “x”",
    ):
        assert demo.decode(demo.encode(text)) == text


@pytest.mark.demo
def test_the_demo_models_template_speaks_first(demo: Tokenizer) -> None:
    chat: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    assert demo.render_chat(chat) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
