from __future__ import annotations

import json
from pathlib import Path

import pytest

from firsttoken.bench.prompt_files import read_jsonl, read_sharegpt
from firsttoken.errors import ConfigError


def test_our_own_lines_are_text_ids_or_messages(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "hi", "max_tokens": 3}\n\n{"prompt": [1, 2]}\n'
        '{"messages": [{"role": "user", "content": "快"}], "ignore_eos": true}\n'
    )
    first, second, third = (dialogue.turns[0] for dialogue in read_jsonl(path, max_tokens=9).dialogues)
    assert (first.prompt, first.max_tokens, first.prompt_tokens) == ("hi", 3, None)
    assert (second.prompt, second.max_tokens, second.prompt_tokens) == ([1, 2], 9, 2)
    assert (third.messages, third.ignore_eos) == ([{"role": "user", "content": "快"}], True)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"prompt": "a", "messages": []}',
        '{"prompt": ""}',
        '{"prompt": "a", "max_tokens": 0}',
        "[",
        '{"promt": "a"}',
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(ConfigError, match="line 2 of"):
        read_jsonl(path)


def test_sharegpt_conversations_become_dialogues_with_scripted_replies(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"

    def said(who: str, value: str) -> dict[str, str]:
        return {"from": who, "value": value}

    conversations = [
        [said("system", "be brief"), said("human", "one"), said("gpt", "1"), said("human", "two"), said("gpt", "2")],
        [said("gpt", "a continued one")],
        [],
        [said("human", "three")],
    ]
    path.write_text(json.dumps([{"id": "x", "conversations": each} for each in conversations]))
    first, last = read_sharegpt(path, max_tokens=5).dialogues
    assert [(turn.messages[-1]["content"], turn.reply, turn.max_tokens) for turn in first.turns] == [
        ("one", "1", 5),
        ("two", "2", 5),
    ]
    assert first.turns[0].messages[0] == {"role": "system", "content": "be brief"}
    assert [turn.reply for turn in last.turns] == [None]
    assert [len(each.turns) for each in read_sharegpt(path, turns=1).dialogues] == [1, 1]


def test_files_without_prompts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("[]")
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_sharegpt(path)
    path.write_text("\n")
    with pytest.raises(ConfigError, match="holds no prompts"):
        read_jsonl(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_jsonl(tmp_path / "none")
    path.write_text("{")
    with pytest.raises(ConfigError, match="is not as it should be"):
        read_sharegpt(path)
