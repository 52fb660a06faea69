"""Tables of launches: written, read back, laid over those that come with firsttoken, and refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firsttoken.errors import ConfigError
from firsttoken.kernels.gpu.launch import Product, RowTile, Table, default_product, fitting_row_tile
from firsttoken.kernels.gpu.launch_table import (
    find_table,
    merged,
    own_table_file,
    pick,
    read_table,
    use_table,
    write_table,
)

CARD = "NVIDIA H200"
LAUNCH = Product(op="norm_linear", n=6144, k=2560, rows=1, form="matvec", bn=8, bk=256, warps=4, ahead=1)
SPLIT = Product(op="linear_add", n=2560, k=9728, rows=8, form="dot", bn=16, bk=64, warps=2, stages=5, splits=2)
PLAIN = Product(op="norm_linear", n=100, k=7, rows=64, form="library")
TABLE = Table(card=CARD, measured="today", products=(LAUNCH, SPLIT, PLAIN))


def test_a_table_reads_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "table.json"
    write_table(TABLE, file)
    assert read_table(file, CARD) == TABLE
    write_table(replace(TABLE, like=("NVIDIA H100",)), file)
    assert read_table(file, CARD).like == ("NVIDIA H100",)
    assert [path.name for path in file.parent.iterdir()] == ["table.json"], "no half of it stays behind"


def test_a_launch_is_written_with_what_its_form_reads(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "table.json")
    written = json.loads((tmp_path / "table.json").read_text())["products"]
    assert set(written[0]) - set(written[2]) == {"bn", "bk", "warps", "ahead"}
    assert set(written[1]) - set(written[2]) == {"bn", "bk", "warps", "stages", "prefetch", "splits"}


def test_what_was_measured_here_stands_over_what_comes_with_firsttoken(tmp_path: Path) -> None:
    shipped = find_table(CARD, tmp_path)
    assert shipped.pick("norm_linear", 6144, 2560, 1) != LAUNCH
    own = tmp_path / "own"
    write_table(TABLE, own_table_file(CARD, own))
    table = find_table(CARD, own)
    assert table.pick("norm_linear", 6144, 2560, 1) == LAUNCH
    assert table.pick("norm_linear", 6144, 2560, 2) == shipped.pick("norm_linear", 6144, 2560, 2)
    assert table.pick("linear_add", 2560, 9728, 5) == SPLIT


def test_a_card_with_the_chip_of_a_measured_one_takes_its_launches(tmp_path: Path) -> None:
    table, h200 = find_table("NVIDIA H100 80GB HBM3", tmp_path), find_table(CARD, tmp_path)
    assert (table.card, table.products) == ("NVIDIA H100 80GB HBM3", h200.products)
    assert not find_table("NVIDIA H20", tmp_path).products, "far fewer multiprocessors"
    own = tmp_path / "own"
    write_table(replace(TABLE, card=table.card), own_table_file(table.card, own))
    assert find_table(table.card, own).pick("norm_linear", 6144, 2560, 1) == LAUNCH


def test_one_row_and_several_are_launched_by_what_each_was_measured_with() -> None:
    assert TABLE.pick("linear_add", 2560, 9728, 3) == SPLIT
    assert TABLE.pick("linear_add", 2560, 9728, 2).form == TABLE.pick("linear_add", 2560, 9728, 1).form == "matvec"
    assert TABLE.pick("norm_linear", 6144, 2560, 2) == default_product("norm_linear", 6144, 2560, 2)
    sixteen = Product(op="norm_linear", n=100, k=128, rows=16, form="dot", bn=16, bk=64, weight="int8-128")
    measured = Table(card=CARD, measured="", products=(sixteen,))
    assert measured.pick("norm_linear", 100, 128, 2, "int8-128") == sixteen
    assert measured.pick("norm_linear", 100, 128, 1, "int8-128").form == "fixed"


def test_an_fp8_cache_is_read_in_longer_tiles_where_they_fit() -> None:
    hopper, ada = 227 * 1024, 99 * 1024
    assert fitting_row_tile(hopper, 128, 1, fp8_cache=False) == RowTile(64, 2, 1)
    assert fitting_row_tile(hopper, 128, 1, fp8_cache=True) == RowTile(128, 3, 2, 16)
    assert fitting_row_tile(ada, 128, 1, fp8_cache=True) == RowTile(64, 2, 1), "three of 128 tokens do not fit"
    assert fitting_row_tile(ada, 256, 1, fp8_cache=True) == RowTile(64, 2, 1)
    assert fitting_row_tile(hopper, 128, 64, fp8_cache=False) == RowTile(128, 3, 2)
    assert (
        fitting_row_tile(ada, 128, 64, fp8_cache=True).tokens > fitting_row_tile(ada, 256, 64, fp8_cache=False).tokens
    )


def test_a_card_that_only_this_machine_measured_has_a_table(tmp_path: Path) -> None:
    card = "NVIDIA GeForce RTX 9999 (lab/2)"
    file = own_table_file(card, tmp_path)
    assert file.name == "nvidia_geforce_rtx_9999_lab_2.json"
    write_table(Table(card=card, measured="", products=(LAUNCH,)), file)
    assert find_table(card, tmp_path).products == (LAUNCH,)


@pytest.fixture
def _table_of_the_card() -> Iterator[None]:
    yield
    use_table("auto", CARD)


@pytest.mark.usefixtures("_table_of_the_card")
def test_a_process_launches_by_the_table_that_it_is_told(tmp_path: Path) -> None:
    def found() -> Product:
        return pick(CARD, "norm_linear", 6144, 2560, 1)

    shipped = found()
    use_table("none", CARD)
    assert found() == default_product("norm_linear", 6144, 2560, 1) != shipped
    write_table(TABLE, tmp_path / "table.json")
    use_table(str(tmp_path / "table.json"), CARD)
    assert found() == LAUNCH
    with pytest.raises(ConfigError, match=r"--launch-table no\.json cannot be read"):
        use_table("no.json", CARD)
    with pytest.raises(ConfigError, match="is for the card"):
        use_table(str(tmp_path / "table.json"), "another card")
    assert found() == LAUNCH, "what is no use changes nothing"
    use_table("auto", CARD)
    assert found() == shipped


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a table"),
        ("{", "is not a table"),
        ("[]", "is not a table"),
        ("\udcff", "is not a table"),
        ('{"card": "NVIDIA H200", "measured": ""}', "is not a table"),
        ('{"card": "NVIDIA H100", "measured": "", "products": []}', "is for the card 'NVIDIA H100'"),
        (
            '{"card": "NVIDIA H200", "measured": "", "products": '
            '[{"op": "linear_add", "n": 64, "k": 64, "rows": 1, "form": "matvec", "bn": 3, "bk": 64}]}',
            "has a launch that cannot run",
        ),
    ],
)
def test_a_file_that_is_no_use_is_one_warning(
    text: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = own_table_file(CARD, tmp_path)
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=why):
        read_table(file, CARD)
    with caplog.at_level(logging.WARNING):
        table = find_table(CARD, tmp_path)
    assert table.products, "what comes with firsttoken"
    [record] = caplog.records
    assert why in record.getMessage()
    assert "delete it or measure again" in record.getMessage()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name another file with --out"):
        write_table(TABLE, tmp_path / "file" / "table.json")


def test_a_second_measurement_keeps_the_rows_that_it_did_not_measure() -> None:
    again = Product(op="norm_linear", n=6144, k=2560, rows=1, form="library")
    assert set(merged(TABLE.products, [again])) == {again, SPLIT, PLAIN}
