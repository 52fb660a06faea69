"""Distances against torch's own, and what is made of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from firsttoken.errors import ConfigError
from firsttoken.quality.answers import agreement
from firsttoken.quality.distance import Piece, compare, distances, perplexities
from firsttoken.quality.reference import Reference


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    torch.manual_seed(seed)
    print(f"seed {seed}")


def test_divergence_is_torchs_and_zero_of_equals() -> None:
    truth, other = (torch.log_softmax(torch.randn(7, 500) * 3, dim=-1) for _ in range(2))
    kl, same = compare(other, truth)
    expected = torch.nn.functional.kl_div(other.double(), truth.double(), log_target=True, reduction="none").sum(-1)
    torch.testing.assert_close(kl, expected, rtol=1e-4, atol=1e-6)
    assert same.tolist() == (other.argmax(-1) == truth.argmax(-1)).tolist()
    kl, same = compare(truth, truth)
    assert kl.tolist() == [0.0] * 7
    assert bool(same.all())


def test_what_is_impossible_in_both_adds_nothing() -> None:
    truth = torch.tensor([[0.5, 0.5, 0.0]]).log()
    other = torch.tensor([[0.25, 0.75, 0.0]]).log()
    kl, _ = compare(other, truth)
    assert kl.item() == pytest.approx(0.5 * torch.tensor(2.0).log() + 0.5 * torch.tensor(2 / 3).log())


def test_figures_are_told_for_each_way_and_kind_and_for_all() -> None:
    pieces = [
        Piece("prefill", "english", torch.tensor([0.0, 2.0]), torch.tensor([True, False]), torch.tensor([-1.0, -1.0])),
        Piece("prefill", "code", torch.tensor([4.0]), torch.tensor([True]), torch.tensor([-4.0])),
        Piece("decode", "english", torch.tensor([1.0]), torch.tensor([True]), torch.tensor([-9.0])),
        Piece("decode", "code", torch.tensor([3.0]), torch.tensor([False]), torch.tensor([-9.0])),
    ]
    found = {(each.way, each.kind): each for each in distances(pieces, ("english", "code"))}
    assert len(found) == 6
    whole = found["prefill", "all"]
    assert (whole.positions, whole.kl, whole.kl_p99) == (3, 2.0, 4.0)
    assert whole.same_best == pytest.approx(2 / 3)
    assert found["decode", "english"].kl == 1.0
    values = {each.kind: each.value for each in perplexities(pieces, ("english", "code"))}
    assert values == {
        kind: pytest.approx(2.718281828**power) for kind, power in (("english", 1), ("code", 4), ("all", 2))
    }


def test_answers_agree_up_to_their_first_difference() -> None:
    found = agreement([[1, 2, 3, 4], [1, 9, 3, 4], [5]], [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6]])
    assert (found.answers, found.same) == (3, 1)
    assert found.shared == pytest.approx((1 + 0.25 + 0.5) / 3)


def test_the_reference_is_read_as_it_was_written(tmp_path: Path) -> None:
    logprobs = torch.randn(5, 30)
    written = Reference(tmp_path / "r", 8, 30, create=True)
    written.write(2, logprobs)
    assert torch.equal(written.read(2, 5, torch.device("cpu")), logprobs)
    assert torch.equal(Reference(tmp_path / "r", 8, 30, create=False).read(3, 2, torch.device("cpu")), logprobs[1:3])


def test_a_reference_larger_than_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokens"):
        Reference(tmp_path / "r", 1 << 30, 1 << 30, create=True)
