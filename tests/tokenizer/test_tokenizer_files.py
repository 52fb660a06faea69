from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from firsttoken.errors import ModelError
from firsttoken.tokenizer import Tokenizer

CHAT: list[dict[str, Any]] = [{"role": "user", "content": "x"}]


@pytest.fixture
def folder(sentencepiece_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(sentencepiece_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def configure(folder: Path, **entries: Any) -> None:
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def test_end_ids_are_the_tokenisers_and_the_generation_configs(folder: Path) -> None:
    assert Tokenizer.load(folder).eos_token_ids == (2,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 2]}')
    assert Tokenizer.load(folder).eos_token_ids == (2, 7)
    (folder / "generation_config.json").write_text('{"eos_token_id": 9}')
    assert Tokenizer.load(folder).eos_token_ids == (2, 9)


def test_the_config_says_whether_a_first_token_is_added(folder: Path) -> None:
    assert Tokenizer.load(folder).encode("hello")[0] == 1  # tokenizer.json's own rule
    configure(folder, add_bos_token=False, add_eos_token=True)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("hello") == [*tokenizer.encode("hello", add_special_tokens=False), 2]
    configure(folder, add_bos_token=True, add_eos_token=False)
    assert Tokenizer.load(folder).encode("hello")[0] == 1


def test_tokens_that_the_config_alone_lists_get_the_next_ids(folder: Path) -> None:
    size = Tokenizer.load(folder).id_limit
    listed = {
        str(size + 1): {"content": "<call>", "special": False},
        str(size): {"content": "<end>", "special": True},
        "2": {"content": "</s>", "special": True},
    }
    configure(folder, added_tokens_decoder=listed, eos_token="<end>")
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("<end><call>", add_special_tokens=False) == [size, size + 1]
    assert tokenizer.eos_token_ids == (size,)
    assert size in tokenizer.special_ids
    assert size + 1 not in tokenizer.special_ids
    assert tokenizer.id_limit == size + 2


def test_ids_with_gaps_are_counted_to_the_highest(folder: Path) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["vocab"]["zz"] = 5000
    file.write_text(json.dumps(content))
    assert Tokenizer.load(folder).id_limit == 5001


def test_a_stored_cut_or_padding_is_switched_off(folder: Path) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    content["padding"] = {
        "strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>",
    }  # fmt: skip
    file.write_text(json.dumps(content))
    assert len(Tokenizer.load(folder).encode("hello world")) == 3


def test_templates_are_found_in_each_place_that_models_use(folder: Path) -> None:
    assert not Tokenizer.load(folder).has_chat_template
    configure(folder, chat_template="config {{ eos_token }}")
    assert Tokenizer.load(folder).render_chat(CHAT) == "config </s>"
    (folder / "chat_template.json").write_text('{"chat_template": "json {{ unk_token }}"}')
    assert Tokenizer.load(folder).render_chat(CHAT) == "json <unk>"
    (folder / "chat_template.jinja").write_text("jinja {{ bos_token }}")
    assert Tokenizer.load(folder).render_chat(CHAT) == "jinja <s>"


def test_a_template_for_tools_is_used_with_tools_alone(folder: Path) -> None:
    names = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]
    configure(folder, chat_template=names)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.render_chat(CHAT) == "plain"
    assert tokenizer.render_chat(CHAT, tools=[]) == "plain"
    assert tokenizer.render_chat(CHAT, tools=[{"type": "function"}]) == "1 tools"
    assert tokenizer.template_variables == {"tools"}
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("file")
    assert Tokenizer.load(folder).render_chat(CHAT, tools=[{"type": "function"}]) == "file"


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_damaged_config_is_named(folder: Path, content: str) -> None:
    (folder / "tokenizer_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer_config\.json"):
        Tokenizer.load(folder)
