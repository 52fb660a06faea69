from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from firsttoken.errors import InvalidRequest
from firsttoken.protected_text import ProtectedText, SpecialPatterns
from firsttoken.tokenizer import Tokenizer
from tests.tokenizer.templates import CHATML, PARTS, TRIMMING

Load = Callable[[str], Tokenizer]
IM_START, IM_END = 151644, 151645
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "<b>é</b>", "parameters": {"type": "object", "properties": {}}},
    }
]

fragments = st.sampled_from(
    [
        "<tool_call>",
        "</think>",
        "<think>\n",
        "\n\n",
        "  ",
        "'ll",
        "<|",
        "|>",
        "12",
        "e\u0301",
        "한",
        "😀",
        "\u200d",
        "<",
    ]
)
texts = st.lists(st.one_of(fragments, st.text(max_size=8)), max_size=6).map("".join)
turns = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": texts}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": texts}, optional={"reasoning_content": texts}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": texts}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": texts,
            "tool_calls": texts.map(
                lambda text: [{"type": "function", "function": {"name": "f", "arguments": {"x": text, "y": [1, None]}}}]
            ),
        }
    ),
)
chats = st.lists(turns, min_size=1, max_size=5)


@pytest.fixture(scope="module")
def reference(qwen_folder: Path) -> Any:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(qwen_folder)
    tokenizer.chat_template = CHATML
    return tokenizer


@given(chats, st.booleans(), st.sampled_from([{}, {"enable_thinking": False}]))
@settings(max_examples=150, deadline=None)
def test_text_and_ids_are_those_of_transformers(
    qwen: Tokenizer, reference: Any, chat: list[dict[str, Any]], with_tools: bool, options: dict[str, Any]
) -> None:
    options = options | ({"tools": TOOLS} if with_tools else {})
    expected = reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **options)
    assert qwen.render_chat(chat, **options) == expected
    expected_ids = reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False, **options)
    assert qwen.encode_chat(chat, **options) == expected_ids


def test_a_trimming_template_renders_as_in_transformers(qwen_with: Load, reference: Any) -> None:
    chat = [{"role": "system", "content": " a "}, {"role": "user", "content": "\nb  c\n"}]
    tokenizer = qwen_with(TRIMMING)
    expected = reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, chat_template=TRIMMING)
    assert tokenizer.render_chat(chat) == expected
    assert tokenizer.render_chat(chat).startswith("<|endoftext|>4<|im_start|>system\n\na<|im_end|>")


def test_parts_render_as_in_transformers(qwen_with: Load, reference: Any) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    expected = reference.apply_chat_template(chat, tokenize=False, chat_template=PARTS)
    assert qwen_with(PARTS).render_chat(chat, add_generation_prompt=False) == expected


@given(
    st.lists(
        st.sampled_from(
            ["<|im_end|>", "<|im_start|>", "system\n", "<|im_", "end|>", "<", "|>", "<|endoftext|>", " ", "\n", "x"]
        )
    ).map("".join)
)
@settings(deadline=None)
def test_special_tokens_are_the_templates_alone(qwen: Tokenizer, text: str) -> None:
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": text},
        {"role": "user", "content": text},
        {"role": "assistant", "content": text, "tool_calls": [{"function": {"name": text, "arguments": {text: text}}}]},
    ]
    ids = qwen.encode_chat(chat, tools=[{"name": text, text: [text]}])
    assert [token_id for token_id in ids if token_id in qwen.special_ids] == [IM_START, IM_END] * 3 + [IM_START]
    assert qwen.decode(ids, skip_special_tokens=False) == qwen.render_chat(chat, tools=[{"name": text, text: [text]}])


@given(st.lists(st.sampled_from(["<|im_end|>", "<|im_", "end|>", "<", "|>", "im", " ", "x"]), max_size=6))
@settings(deadline=None)
def test_parts_side_by_side_make_no_special_token(parts_qwen: Tokenizer, parts: list[str]) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": part} for part in parts]}]
    ids = parts_qwen.encode_chat(chat)
    assert [token_id for token_id in ids if token_id in parts_qwen.special_ids] == [IM_START, IM_END]
    text = f"<|im_start|>user\n{''.join(parts)}<|im_end|>\n"
    assert parts_qwen.decode(ids, skip_special_tokens=False) == text


@pytest.fixture(scope="module")
def parts_qwen(qwen_with: Load) -> Tokenizer:
    return qwen_with(PARTS)


def test_a_special_token_in_a_users_text_is_encoded_as_its_letters(qwen: Tokenizer) -> None:
    ids = qwen.encode_chat([{"role": "user", "content": "a<|im_end|>b"}], add_generation_prompt=False)
    middle = qwen.encode("user\na<|im_end|>b", parse_special=False)
    assert ids == [IM_START, *middle, IM_END, *qwen.encode("\n")]


def test_private_use_characters_of_the_users_own_come_through(qwen: Tokenizer) -> None:
    content = "".join(map(chr, range(0xF0000, 0xF0010))) + "<|im_end|>"
    assert f"user\n{content}<|im_end|>" in qwen.render_chat([{"role": "user", "content": content}])


def test_lone_surrogates_become_replacement_characters(qwen: Tokenizer) -> None:
    text = qwen.render_chat([{"role": "user", "content": "a\ud800b \ud83d\ude00"}])
    assert "user\na\ufffdb 😀<|im_end|>" in text
    assert qwen.encode_chat([{"role": "user", "content": "a\ud800b"}])


def test_stand_ins_never_collide_with_what_is_there() -> None:
    patterns = SpecialPatterns(["<s>"])
    protected = ProtectedText(patterns, {"a": ["\U000f0000"]})
    assert protected.protect("\U000f0000<s>") == "\U000f0000\U000f0001"
    assert protected.restore("\U000f0000\U000f0001") == "\U000f0000<s>"


@pytest.mark.parametrize("content", ["ab\n", "ab \n\n", "ab", "", " ", "x<|im_end|>", "a<", "</think>\n\nab\n"])
@pytest.mark.parametrize("template", [CHATML, TRIMMING])
def test_a_continued_message_ends_exactly_where_its_content_does(qwen_with: Load, template: str, content: str) -> None:
    tokenizer = qwen_with(template)
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]
    text = tokenizer.render_chat(chat, continue_final_message=True)
    kept = content.split("</think>")[-1] if template is CHATML else content.lstrip()
    assert text.endswith("<|im_start|>assistant\n" + ("\n" if template is TRIMMING else "") + kept)
    assert tokenizer.decode(tokenizer.encode_chat(chat, continue_final_message=True), skip_special_tokens=False) == text


def test_a_continued_message_is_the_one_of_transformers(qwen: Tokenizer, reference: Any) -> None:
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "ab\n"}]
    expected = reference.apply_chat_template(chat, continue_final_message=True, return_dict=False)
    assert qwen.encode_chat(chat, continue_final_message=True) == expected


def test_a_continued_message_may_have_parts(parts_qwen: Tokenizer) -> None:
    chat = [{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"}]}]
    assert parts_qwen.render_chat(chat, continue_final_message=True) == "<|im_start|>assistant\nab\n"


def test_a_template_that_drops_the_last_message_cannot_continue_it(qwen_with: Load) -> None:
    tokenizer = qwen_with("{{ messages[0].role }}")
    with pytest.raises(InvalidRequest, match="continue_final_message"):
        tokenizer.encode_chat([{"role": "user", "content": "x"}], continue_final_message=True)


def test_a_model_without_a_template_says_so(sentencepiece: Tokenizer) -> None:
    tokenizer = sentencepiece
    assert not tokenizer.has_chat_template
    with pytest.raises(InvalidRequest, match="no chat template"):
        tokenizer.encode_chat([{"role": "user", "content": "x"}])


def test_a_chat_over_the_limit_is_refused_with_its_count(qwen: Tokenizer) -> None:
    chat = [{"role": "user", "content": "one two three four"}]
    count = len(qwen.encode_chat(chat))
    assert len(qwen.encode_chat(chat, limit=count)) == count
    with pytest.raises(InvalidRequest, match=f"context length is {count - 1} tokens.*resulted in {count} ") as caught:
        qwen.encode_chat(chat, limit=count - 1)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
