"""`firsttoken kernels`: what it prints and writes, over a card whose times are known; and what it says without one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import click
import pytest
import torch
from rich.console import Console
from tests.kernels.fake_card import FakeCard
from tests.kernels.fake_steps import FakeSteps
from tests.qwen3_4b import CONFIG

from firsttoken.cli.kernels import Seconds
from firsttoken.cli.launch_words import words
from firsttoken.cli.measured_launches import OpenCard, measure_launches
from firsttoken.cli.option_types import RowCounts
from firsttoken.kernels.gpu.launch import Product, default_product
from firsttoken.kernels.gpu.launch_table import find_table, own_table_file, read_table
from firsttoken.model.config import parse_config

NAME = "NVIDIA GeForce RTX 9999"


@pytest.mark.parametrize("form", ["matvec", "fixed"])
def test_launches_that_differ_by_the_tiles_under_way_read_differently(form: Literal["matvec", "fixed"]) -> None:
    one, two = (
        Product(op="linear_add", n=64, k=256, rows=1, form=form, bn=4, bk=64, weight="int8-32", ahead=ahead)
        for ahead in (1, 2)
    )
    assert (words(one), words(two)) == (f"{form} 4x64, 4 warps, 1 ahead", f"{form} 4x64, 4 warps, 2 ahead")


def us(product: Product) -> float:
    """Some 50 at best, 51 for the default of one row; the head alone is as fast with the default."""
    if product.form == "library":
        return 90.0
    return 51.0 if product.n == 151936 else 50.0 + abs(product.ahead - 3)


def step_us(rows: int, products: frozenset[Product]) -> float:
    """Of whole steps of 36 layers: the launch of o that is the fastest alone slows its neighbours."""
    return 500.0 + 36 * sum(us(p) + (2.0 if p.ahead == 3 and p.k == 4096 else 0.0) for p in products)


def measured(
    folder: Path,
    rows: tuple[int, ...] = (1,),
    out: Path | None = None,
    card: FakeCard | None = None,
    steps: Callable[[], FakeSteps] = lambda: FakeSteps(step_us),
) -> str:
    screen = io.StringIO()
    opened = OpenCard(
        card or FakeCard(us),
        lambda *_: steps(),
        NAME,
        read=4e12,
        processes=200,
        versions="torch 1, Triton 2",
    )
    config = parse_config(CONFIG)
    measure_launches(Console(file=screen, width=160), config, rows, opened, budget=60, out=out, folder=folder)
    return screen.getvalue()


def row(screen: str, name: str) -> list[str]:
    [line] = [line for line in screen.splitlines() if line.strip("│ ").startswith(name)]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_each_product_is_shown_with_its_rate_and_its_share_of_the_cards(tmp_path: Path) -> None:
    screen = measured(tmp_path)
    assert row(screen, "qkv") == [
        "qkv",
        "1",
        "matvec 2x512, 2 warps, 3 ahead",
        "50.0",
        "0.63",  # 2 * 6144 * 2560 bytes in 50 µs
        "16%",
        "51.0",
        "97 of 97",
    ]
    assert row(screen, "head")[3:7] == ["51.0", "15.25", "381%", "the same"]
    assert row(screen, "all of a step, 36 layers")[3] == "7,287", "36 layers of four products, and the head"
    assert "4.00 TB/s" in screen


def test_a_launch_that_is_fast_alone_and_slow_in_a_whole_step_is_not_taken(tmp_path: Path) -> None:
    screen = measured(tmp_path)
    assert row(screen, "o")[2:7] == ["matvec 2x512, 2 warps, 2 ahead", "51.0", "0.41", "10%", "the same"]
    whole = row(screen, "whole step")
    assert whole[3:7] == ["9,572", "0.84", "21%", "9,680"]  # 8.0 GB in 9,572 µs
    assert "(3 of 5 launches changed)" in screen


def test_a_model_that_does_not_fit_has_its_launches_judged_alone(tmp_path: Path) -> None:
    def none() -> FakeSteps:
        raise torch.OutOfMemoryError

    screen = measured(tmp_path, steps=none)
    assert "does not fit in the card's free memory" in screen
    assert row(screen, "o")[2] == "matvec 2x512, 2 warps, 3 ahead"
    assert "whole step" not in screen
    assert find_table(NAME, tmp_path).measured.endswith("over cold weights")


def test_what_ends_whole_steps_early_loses_nothing_that_was_found(tmp_path: Path) -> None:
    def stopped(rows: int, products: frozenset[Product]) -> float:
        if rows == 16:
            raise KeyboardInterrupt
        return step_us(rows, products)

    screen = measured(tmp_path, rows=(1, 16), steps=lambda: FakeSteps(stopped))
    assert "Stopped, so launches are judged alone: at 16 rows." in screen
    assert len(read_table(own_table_file(NAME, tmp_path), NAME).products) == 10
    assert "matvec 2x512, 2 warps, 2 ahead" in screen, "settled before"


def test_a_launch_in_use_that_gives_wrong_numbers_is_named_so(tmp_path: Path) -> None:
    card = FakeCard(us)
    card.wrong = {default_product("norm_linear", 6144, 2560, 1)}
    assert row(measured(tmp_path, card=card), "qkv")[6] == "failed"


def test_what_was_found_is_what_serve_takes_next(tmp_path: Path) -> None:
    screen = measured(tmp_path, rows=(1, 16))
    file = own_table_file(NAME, tmp_path)
    assert f"Written: {file} (" in screen
    assert "pull request" in screen
    table = find_table(NAME, tmp_path)
    assert {(p.n, p.k, p.rows) for p in table.products} == {
        (n, k, rows)
        for n, k in ((6144, 2560), (2560, 4096), (9728, 2560), (2560, 9728), (151936, 2560))
        for rows in (1, 16)
    }
    assert table.measured.endswith(
        "torch 1, Triton 2, each product alone in a CUDA graph over cold weights, then the best by whole decode steps"
    )


def test_a_second_measurement_of_other_rows_keeps_the_first(tmp_path: Path) -> None:
    measured(tmp_path, rows=(1,))
    measured(tmp_path, rows=(4,))
    assert {p.rows for p in read_table(own_table_file(NAME, tmp_path), NAME).products} == {1, 4}


def test_another_file_is_written_where_the_user_says_and_serve_does_not_look(tmp_path: Path) -> None:
    screen = measured(tmp_path / "own", out=tmp_path / "mine.json")
    assert "does not look there" in screen
    assert read_table(tmp_path / "mine.json", NAME).products
    assert not (tmp_path / "own").exists()


def test_without_a_gpu_one_sentence_says_so() -> None:
    command = [sys.executable, "-m", "firsttoken", "kernels", "measure", "no-such-folder/"]
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: There is no GPU here that torch can use")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("45s", 45), ("2m", 120), ("1.5 min", 90)])
def test_a_budget_is_seconds_or_minutes(text: str, seconds: float) -> None:
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3", "2h", "soon"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90, 90s or 2m"):
        Seconds().convert(text, None, None)


def test_rows_come_in_order_and_once() -> None:
    assert RowCounts(64).convert("16, 1,2,1", None, None) == (1, 2, 16)


@pytest.mark.parametrize("text", ["", "0", "65", "1,,2", "a", "²"])
def test_what_are_no_row_counts_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="from 1 to 64"):
        RowCounts(64).convert(text, None, None)
