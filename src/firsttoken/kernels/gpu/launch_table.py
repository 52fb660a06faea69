"""The measured launches of a card: those that come with firsttoken, and over them those measured on this machine."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

import msgspec

from firsttoken.cache import cache_folder
from firsttoken.chips import launched_as
from firsttoken.errors import ConfigError
from firsttoken.kernels.gpu.candidates import why_impossible
from firsttoken.kernels.gpu.launch import DENSE, Op, Product, Table

_FIELDS = {  # what each form reads of a launch
    "matvec": ("bn", "bk", "warps", "ahead"),
    "fixed": ("bn", "bk", "warps", "ahead"),
    "dot": ("bn", "bk", "warps", "stages", "prefetch", "splits"),
    "pairs": ("bn", "bk", "warps", "stages", "prefetch", "splits"),
    "library": (),
}
_log = logging.getLogger(__name__)


@functools.cache
def pick(card: str, op: Op, n: int, k: int, rows: int, weight: str = DENSE) -> Product:
    """`Table.pick` of the card's table, remembered."""
    return table_for(card).pick(op, n, k, rows, weight)


@functools.cache
def table_for(card: str) -> Table:
    """The table in use, remembered: files are read, and complained of, once."""
    return find_table(card) if _told is None or _told.card != card else _told


_told: Table | None = None


def use_table(choice: str, card: str) -> None:
    """What this process launches by on `card` from here on: `auto` as `find_table`, `none` the defaults, or a file.

    Raises ConfigError where the file is no table of the card.
    """
    told = None if choice == "auto" else Table(card=card, measured="", products=())
    if choice not in ("auto", "none"):
        try:
            told = read_table(Path(choice), card)
        except OSError as error:
            raise ConfigError(
                f"--launch-table {choice} cannot be read ({error.strerror}); name a file that `firsttoken kernels "
                "measure` wrote, auto or none."
            ) from None
    _tell(told)


@contextmanager
def launching_by(table: Table) -> Iterator[None]:
    """Inside, this process launches by this table on its card."""
    before = _told
    _tell(table)
    try:
        yield
    finally:
        _tell(before)


def _tell(table: Table | None) -> None:
    global _told
    _told = table
    pick.cache_clear()
    table_for.cache_clear()


def find_table(card: str, folder: Path | None = None) -> Table:
    """The launches for `card` (as the driver names it) or another with its chip, empty where nobody measured one.

    `folder` is where this machine's own are kept, by default in the cache folder.
    """
    own = own_table(card, folder)
    tables = {table.card: table for table in _shipped()}
    name = launched_as(card, {measured: table.like for measured, table in tables.items()})
    shipped = None if name is None else replace(tables[name], card=card)
    if shipped is None or own is None:
        return own or shipped or Table(card=card, measured="", products=())
    return replace(own, products=merged(shipped.products, own.products))


def merged(products: Sequence[Product], over: Sequence[Product]) -> tuple[Product, ...]:
    """Both, those in `over` in place of others for the same shape and rows."""
    found = {(p.op, p.n, p.k, p.rows, p.weight): p for p in (*products, *over)}
    return tuple(found[key] for key in sorted(found))


def own_table_file(card: str, folder: Path | None = None) -> Path:
    """Where this machine's measurement of a card is kept. Raises ConfigError for a user without a home folder."""
    return (folder or cache_folder() / "launch") / f"{re.sub(r'[^a-z0-9]+', '_', card.lower()).strip('_')}.json"


def own_table(card: str, folder: Path | None = None) -> Table | None:
    """What was measured on this machine; a file that is no use is one warning, and as if it were not there."""
    try:
        file = own_table_file(card, folder)
    except ConfigError:  # no home to look into
        return None
    try:
        return read_table(file, card)
    except ConfigError as error:
        _log.warning("%s The launches that come with firsttoken are used instead.", error)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("%s cannot be read (%s); check who may read it.", file, error.strerror)
    return None


def read_table(file: Path, card: str) -> Table:
    """A written table. Raises OSError where it cannot be read, ConfigError where it is not one of this card."""
    try:
        table = msgspec.json.decode(file.read_bytes(), type=Table)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a table of kernel launches ({error}); delete it or measure again.") from error
    if table.card != card:
        raise ConfigError(f"{file} is for the card {table.card!r}, not {card!r}; delete it or measure again.")
    for product in table.products:
        if (reason := why_impossible(product)) is not None:
            raise ConfigError(f"{file} has a launch that cannot run ({reason}); delete it or measure again.")
    return table


def write_table(table: Table, file: Path) -> None:
    """One launch a line, with the fields that its form reads. Raises ConfigError where the file cannot be written."""
    lines = [f"    {_line(product)}" for product in table.products]
    like = f'  "like": {_json(table.like)},\n' if table.like else ""
    head = f'{{\n  "card": {_json(table.card)},\n{like}  "measured": {_json(table.measured)},\n  "products": [\n'
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        part.write_text(head + ",\n".join(lines) + "\n  ]\n}\n")
        part.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror}); name another file with --out.") from error


def _line(product: Product) -> str:
    named = asdict(product)
    weight = ("weight",) if product.weight != DENSE else ()
    fields = ("op", "n", "k", "rows", *weight, "form", *_FIELDS[product.form])
    return "{" + ", ".join(f'"{name}": {_json(named[name])}' for name in fields) + "}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _shipped() -> list[Table]:
    folder = resources.files("firsttoken.kernels.gpu").joinpath("tables")
    files = [file for file in folder.iterdir() if file.name.endswith(".json")]
    return [msgspec.json.decode(file.read_bytes(), type=Table) for file in files]
