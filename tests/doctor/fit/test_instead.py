from __future__ import annotations

import pytest

from firsttoken.doctor.fit.ask import fit
from firsttoken.doctor.fit.form import fewer_bits
from firsttoken.doctor.fit.instead import instead, roomier
from firsttoken.doctor.fit.named import by_size, named_config
from firsttoken.errors import OutOfMemory
from firsttoken.model.cost import num_parameters
from tests.doctor.fit.asks import BF16, QWEN3_4B, ask_about


def test_a_context_too_long_names_the_longest_that_fits() -> None:
    ask = ask_about("3060", context=65_536)
    with pytest.raises(OutOfMemory):
        fit(ask)
    first = instead(ask, ())[0]
    assert first.text == f"a context of {first.fit.context:,} tokens"
    assert 10_000 < first.fit.context < 16_000


def test_too_many_at_once_names_fewer_and_a_shorter_context() -> None:
    texts = [change.text for change in instead(ask_about("4090", context=32_768, concurrency=8), ())]
    assert texts[:2] == ["a context of 11,072 tokens", "2 at once"]
    texts = [change.text for change in instead(ask_about("3060", context=32_768, concurrency=8), ())]
    assert "one at once, with a context of 14,352 tokens" in texts
    assert not any(text.endswith("at once") for text in texts)


def test_a_model_too_large_names_a_smaller_one() -> None:
    (change,) = instead(ask_about("3070"), ())
    assert change.fit.ask.model == "Qwen/Qwen3-1.7B"
    assert change.fit.ask.command() == "firsttoken serve Qwen/Qwen3-1.7B"


def test_fewer_bits_are_suggested_where_they_are_enough_and_told_where_they_are_not_needed() -> None:
    forms = fewer_bits(BF16, QWEN3_4B, (8, 6), gpu=True)
    texts = [change.text for change in instead(ask_about("3070", context=8192), forms)]
    assert texts == [*(f"fewer bits: {form.name}" for form in forms[1:4]), "a smaller model, Qwen/Qwen3-1.7B"]
    tokens = [one.plan.kv_tokens for one in roomier(ask_about("3080"), forms)]
    assert len(tokens) == len(forms)
    assert min(tokens) > 1.9 * fit(ask_about("3080")).plan.kv_tokens


def test_every_change_fits() -> None:
    for change in instead(ask_about("3060", context=65_536, concurrency=4), ()):
        assert fit(change.fit.ask).plan == change.fit.plan


def test_the_models_known_by_name_have_the_parameters_that_they_are_known_for() -> None:
    billions = {name: num_parameters(config) / 1e9 for name, config in by_size()}
    assert billions["Qwen/Qwen3-8B"] == pytest.approx(8.1907, abs=1e-4)
    assert billions["Qwen/Qwen3-4B"] == pytest.approx(4.0225, abs=1e-4)
    assert billions["Qwen/Qwen3-1.7B"] == pytest.approx(1.7206, abs=1e-4)
    assert billions["Qwen/Qwen3-0.6B"] == pytest.approx(0.5960, abs=1e-4)
    assert named_config("Qwen/Qwen3-4B-Instruct-2507") == QWEN3_4B
    assert named_config("someone/else") is None
