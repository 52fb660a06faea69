from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.builders import tiny_model_folder
from tests.engine.tiny_engine import TinyEngine, request

from firsttoken.errors import InvalidRequest
from firsttoken.types import SamplingParams

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyEngine]:
    with TinyEngine(tiny_model_folder(tmp_path_factory.mktemp("model"))) as engine:
        yield engine


def answer(tiny: TinyEngine, **params: object) -> list[int]:
    sampling = SamplingParams(**({"temperature": 0.0, "max_tokens": 24, "ignore_eos": True} | params))  # type: ignore[arg-type]
    return tiny.run([request("r", PROMPT, sampling)])["r"].token_ids


def holds(ids: list[int], word: tuple[int, ...]) -> bool:
    return any(tuple(ids[i : i + len(word)]) == word for i in range(len(ids)))


def test_only_allowed_ids_are_chosen_beside_rows_that_may_take_any(tiny: TinyEngine) -> None:
    free = answer(tiny)
    allowed = (11, 12, 100)
    narrow = SamplingParams(max_tokens=24, ignore_eos=True, allowed_token_ids=allowed, seed=1)
    plain = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    answers = tiny.run([request("narrow", PROMPT, narrow), request("free", PROMPT, plain)])
    assert set(answers["narrow"].token_ids) <= set(allowed)
    assert answers["free"].token_ids == free
    assert answer(tiny) == free, "a slot remembers its last holder"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_bad_word_is_never_completed_though_its_beginning_may_stand(tiny: TinyEngine, size: int) -> None:
    """A step is in flight all the while, so the host never knows the newest id."""
    free = answer(tiny)
    word = tuple(free[6 : 6 + size])
    held = answer(tiny, bad_words=(word,))
    assert not holds(held, word)
    at = next(i for i in range(len(free)) if tuple(free[i : i + size]) == word) + size - 1
    assert held[:at] == free[:at], "nothing else is changed"
    assert held[at] != word[-1]


def test_a_bad_word_counts_from_the_output_alone(tiny: TinyEngine) -> None:
    free = answer(tiny)
    assert answer(tiny, bad_words=((PROMPT[-1], free[0]),)) == free


@pytest.mark.parametrize("field", [{"allowed_token_ids": (10**6,)}, {"bad_words": ((1, 10**6),)}])
def test_ids_that_the_model_has_not_are_refused(tiny: TinyEngine, field: dict[str, tuple[object, ...]]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        answer(tiny, **field)
    assert refusal.value.param == next(iter(field))
