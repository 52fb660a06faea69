from __future__ import annotations

from typing import Literal

import pytest

from firsttoken.bench.common_words import COMMON_WORDS
from firsttoken.bench.prompt_form import PromptForm, learn_form
from firsttoken.bench.prompts import PromptSource, trimmed, turns_of
from firsttoken.bench.scenario import Dialogue, FixedDialogues, Parts, RandomPrompts, Turn
from firsttoken.errors import ConfigError, Unavailable


class FakeServer:
    """Counts a word as a token, except `hard` ones as two; has or lacks endpoints as told."""

    def __init__(
        self, *, tokenize: bool = True, kinds: tuple[str, ...] = ("ids", "text", "chat"), hard: int = 0
    ) -> None:
        self._tokenize = tokenize
        self._kinds = kinds
        self.hard = set(COMMON_WORDS[40 : 40 + hard])
        self.asked = 0

    def tokenize(self, text: str) -> list[int] | None:
        self.asked += 1
        if not self._tokenize:
            return None
        return [token for word in text.split() for token in self._ids(word)]

    def prompt_tokens(self, kind: Literal["ids", "text", "chat"], prompt: str | list[int]) -> int | None:
        self.asked += 1
        if kind not in self._kinds:
            return None
        if isinstance(prompt, list):
            return len(prompt)
        count = sum(len(self._ids(word)) for word in prompt.split())
        return count + {"text": 1, "chat": 9}.get(kind, 0)

    def _ids(self, word: str) -> list[int]:
        number = COMMON_WORDS.index(word)
        return [number, 9999] if word in self.hard else [number]


def test_words_are_distinct_and_enough() -> None:
    assert len(set(COMMON_WORDS)) == len(COMMON_WORDS) >= 256


def test_token_ids_are_taken_where_the_server_takes_them() -> None:
    server = FakeServer()
    form = learn_form(server)
    assert (form.kind, form.overhead, form.path) == ("ids", 0, "/v1/completions")
    assert form.ids == list(range(len(COMMON_WORDS)))


def test_words_of_several_tokens_are_left_out() -> None:
    server = FakeServer(hard=5)
    form = learn_form(server)
    assert set(COMMON_WORDS) - set(form.words) == server.hard


@pytest.mark.parametrize(("kinds", "kind", "overhead"), [(("text", "chat"), "text", 1), (("chat",), "chat", 9)])
def test_text_is_calibrated_by_usage_where_ids_are_not_taken(kinds: tuple[str, ...], kind: str, overhead: int) -> None:
    server = FakeServer(tokenize=False, kinds=kinds, hard=3)
    form = learn_form(server)
    assert (form.kind, form.overhead) == (kind, overhead)
    assert not server.hard & set(form.words)


def test_an_endpoint_that_was_asked_for_is_used() -> None:
    assert learn_form(FakeServer(), "chat").path == "/v1/chat/completions"
    with pytest.raises(Unavailable, match="does not answer on"):
        learn_form(FakeServer(kinds=("chat",)), "completions")


def test_a_server_without_counts_is_told() -> None:
    with pytest.raises(Unavailable, match="neither"):
        learn_form(FakeServer(tokenize=False, kinds=()))


def test_a_foreign_tokenizer_is_told() -> None:
    with pytest.raises(ConfigError, match="--dataset"):
        learn_form(FakeServer(tokenize=False, kinds=("chat",), hard=len(COMMON_WORDS) - 40))


@pytest.mark.parametrize("kinds", [("ids", "text"), ("text",), ("chat",)])
@pytest.mark.parametrize("length", [32, 512])
def test_prompts_have_exactly_the_length_asked_for(kinds: tuple[str, ...], length: int) -> None:
    server = FakeServer(tokenize="ids" in kinds, kinds=kinds)
    form = learn_form(server)
    source = PromptSource(RandomPrompts(input_tokens=length, output_tokens=7), form, "1/s")
    (turn,) = source.dialogue(3).turns
    prompt = turn.prompt if turn.prompt is not None else turn.messages[0]["content"]
    assert server.prompt_tokens(form.kind, prompt) == length
    assert (turn.prompt_tokens, turn.max_tokens, turn.ignore_eos) == (length, 7, True)


IDS = PromptForm(kind="ids", words=list(COMMON_WORDS), ids=list(range(len(COMMON_WORDS))))


def ids(workload: RandomPrompts | Parts, number: int, seed: str = "1/s") -> list[int]:
    prompt = PromptSource(workload, IDS, seed).dialogue(number).turns[0].prompt
    assert isinstance(prompt, list)
    return prompt


def test_no_two_prompts_share_a_first_block_whatever_their_run_or_number() -> None:
    workload = RandomPrompts(input_tokens=64, output_tokens=1)
    blocks = {tuple(ids(workload, number, seed)[:16]) for number in range(300) for seed in ("1/a", "1/b", "2/a")}
    assert len(blocks) == 900


def test_a_seed_gives_its_prompts_again() -> None:
    workload = RandomPrompts(input_tokens=64, output_tokens=1)
    assert ids(workload, 5) == ids(workload, 5)


def test_a_shared_prefix_is_shared_and_no_more() -> None:
    workload = RandomPrompts(input_tokens=64, output_tokens=1, shared_prefix_tokens=48)
    one, other = ids(workload, 1), ids(workload, 2)
    assert one[:48] == other[:48]
    assert one[48:] != other[48:]


def test_a_prompt_shorter_than_the_template_is_refused() -> None:
    form = PromptForm(kind="chat", words=list(COMMON_WORDS), overhead=20)
    with pytest.raises(ConfigError, match="too short"):
        PromptSource(RandomPrompts(input_tokens=20, output_tokens=1), form, "1").dialogue(0)


def test_parts_come_in_their_numbers_and_warm_up_begins_at_the_first() -> None:
    fixed = FixedDialogues(dialogues=[Dialogue(turns=[Turn(prompt=text)], group="b") for text in ("x", "y")])
    parts = Parts(counts=[2, 1], workloads=[RandomPrompts(input_tokens=8, output_tokens=1, group="a"), fixed])
    source = PromptSource(parts, IDS, "1")
    first = source.warm_up_first(6)
    for start in (0, first):
        assert [source.dialogue(start + place).group for place in range(6)] == ["a", "a", "b"] * 2
    assert [source.dialogue(place).turns[0].prompt for place in (2, 5, 8)] == ["x", "y", "x"]


def numbered(count: int) -> FixedDialogues:
    return FixedDialogues(dialogues=[Dialogue(turns=[Turn(prompt=str(number))]) for number in range(count)])


def test_warm_up_takes_given_dialogues_from_the_end() -> None:
    source = PromptSource(numbered(10), None, "1")
    first = source.warm_up_first(3)
    assert [source.dialogue(first + place).turns[0].prompt for place in range(4)] == ["7", "8", "9", "0"]


@pytest.mark.parametrize(
    ("measured", "kept"),
    [(4, [0, 1, 2, 3, 18, 19]), (18, list(range(20))), (30, list(range(20))), (None, list(range(20)))],
)
def test_dialogues_that_nobody_plays_are_not_sent_to_the_clients(measured: int | None, kept: list[int]) -> None:
    workload = trimmed(numbered(20), measured, 2)
    assert isinstance(workload, FixedDialogues)
    assert [dialogue.turns[0].prompt for dialogue in workload.dialogues] == [str(number) for number in kept]


def test_requests_are_counted_by_their_turns() -> None:
    fixed = FixedDialogues(dialogues=[Dialogue(turns=[Turn(prompt="x")] * count) for count in (3, 5)])
    parts = Parts(counts=[1, 2], workloads=[RandomPrompts(input_tokens=8, output_tokens=1), fixed])
    assert [turns_of(parts, number) for number in range(6)] == [1, 3, 5, 1, 3, 5]


def test_a_mark_is_one_for_a_dialogue_and_differs_between_dialogues_and_seeds() -> None:
    turns = [Turn(messages=[{"role": "user", "content": "{unique} a"}]), Turn(prompt="{unique}")]
    workload = FixedDialogues(dialogues=[Dialogue(turns=turns)])

    def marks(number: int, seed: str) -> set[str]:
        dialogue = PromptSource(workload, None, seed).dialogue(number)
        return {dialogue.turns[0].messages[0]["content"].removesuffix(" a"), str(dialogue.turns[1].prompt)}

    found = [marks(number, seed) for number in (0, 1) for seed in ("1", "2")]
    assert [len(each) for each in found] == [1] * 4
    assert len(set.union(*found)) == 4
