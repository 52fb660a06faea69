"""Which flags a server takes, and in which versions: read from the tables that `scripts/launch_flags.py` makes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal

Kind = Literal["str", "int", "float", "tokens", "json", "list", "switch", "on-off", "switch-or-value"]
WITHOUT_VALUE = ("switch", "on-off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. `choices` is empty where any value goes."""

    name: str
    kind: Kind
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    since: str = ""  # the first version looked at that has it
    gone: str = ""  # the first one after it
    deprecated: str = ""
    check: Callable[[str], str | None] | None = None  # what is wrong with a value, where the program can be asked
    repeats: bool = False  # may be given several times

    @property
    def takes_value(self) -> bool:
        return self.kind not in WITHOUT_VALUE


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """A program's launch flags in one version."""

    program: str  # as its users write it
    version: str
    flags: Mapping[str, Flag]  # by every name
    versions: tuple[str, ...] = ()
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of the environment: since, gone
    variable_prefix: str = ""
    underscores: bool = False  # `--max_model_len` means `--max-model-len`
    abbreviations: bool = False  # the beginning of one flag's name means that flag
    dotted: bool = False  # `--json-flag.key value`
    positional: int | None = 1  # words without a flag that it takes; None: any number
    paired: bool = False  # `--disable-x` means `--no-enable-x`

    def find(self, written: str) -> tuple[Flag | None, bool]:
        """The flag that a word names, without its value, and whether it turns the flag off."""
        name = self.normal(written)
        if name in self.flags and not (self.paired and self.is_gone(self.flags[name])):
            return self.flags[name], False
        if name.startswith("--no-") and (flag := self.flags.get("--" + name[5:])) and flag.kind == "on-off":
            return flag, True
        for one, other in (("--disable-", "--enable-"), ("--enable-", "--disable-")):
            flag = self.flags.get(other + name.removeprefix(one)) if self.paired and name.startswith(one) else None
            if flag and flag.kind == "on-off":
                return flag, True
        return self.flags.get(name), False

    def abbreviated(self, written: str) -> list[Flag]:
        """The flags of this version that begin so, where the program takes beginnings."""
        if not self.abbreviations or not written.startswith("--"):
            return []
        name = self.normal(written)
        found = {flag.name: flag for key, flag in self.flags.items() if key.startswith(name) and self.has(flag)}
        return list(found.values())

    def normal(self, written: str) -> str:
        head = written.partition(".")[0] if self.dotted else written
        if self.underscores and head.startswith("--"):
            head = "--" + head[2:].replace("_", "-")
        return head

    def has(self, flag: Flag) -> bool:
        """Whether this version has it."""
        return not self.is_gone(flag) and not self.is_later(flag)

    def is_gone(self, flag: Flag) -> bool:
        return bool(flag.gone) and number(self.version) >= number(flag.gone)

    def is_later(self, flag: Flag) -> bool:
        """Whether it came after this version. What the oldest version looked at had may be older still."""
        return bool(flag.since) and flag.since != self.versions[0] and number(self.version) < number(flag.since)

    def repeats(self, name: str) -> bool:
        """Whether giving the flag again adds to it."""
        flag = self.flags[name]
        return flag.repeats or name in ("--middleware", "--api-key", "--lora-modules", "--lora-paths")

    def nearest(self, written: str) -> str | None:
        """The name that was probably meant."""
        names = [name for name, flag in self.flags.items() if self.has(flag) and name.startswith("--")]
        return nearest(self.normal(written).replace("_", "-"), names)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The one of the names that a mistyped word comes near to; None where none is near."""
    names = list(names)
    if near := get_close_matches(word, names, n=1, cutoff=0.75):
        return near[0]
    wanted = set(re.split(r"[-_]+", word.lower().strip("-")))
    same = [name for name in names if set(name.strip("-").split("-")) == wanted]  # the words in another order
    return same[0] if same else None


def number(version: str) -> tuple[int, ...]:
    """`0.10.1.post1` as something to compare; a version that cannot be read is the newest."""
    parts = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in parts[1].split(".")) if parts else (1 << 30,)


@cache
def _read(tool: str) -> dict[str, object]:
    return tomllib.loads((files(__package__) / "tables" / f"{tool}.toml").read_text(encoding="utf-8"))


@cache
def load_table(tool: str, version: str | None = None) -> FlagTable:
    """The table of `vllm` or `sglang`; the newest version where none is given."""
    raw = _read(tool)
    rows, versions = raw["flags"], raw["versions"]
    assert isinstance(rows, dict)
    assert isinstance(versions, list)
    flags: dict[str, Flag] = {}
    for name, row in rows.items():
        choices, also = tuple(row.get("choices", ())), tuple(row.get("also", ()))
        flag = Flag(name=name, **(row | {"choices": choices, "also": also}))
        for key in (name, *also):
            if key not in flags or flags[key].gone:
                flags[key] = flag
    helps = Flag(name="--help", kind="switch-or-value", also=("-h", "-v", "--version"))
    flags |= dict.fromkeys((helps.name, *helps.also), helps)
    chosen = version or versions[-1]
    vllm = tool == "vllm"
    variables = raw.get("variables", {})
    assert isinstance(variables, dict)
    return FlagTable(
        program="vLLM" if vllm else "SGLang",
        version=chosen,
        flags=flags,
        versions=tuple(versions),
        variables=variables,
        variable_prefix="VLLM_" if vllm else "",
        underscores=vllm,
        abbreviations=True,
        dotted=vllm,
        paired=vllm and number(chosen) >= number(_PAIRED_SINCE),
    )


_PAIRED_SINCE = "0.33.0"  # vLLM's `--disable-x` for `--enable-x`
