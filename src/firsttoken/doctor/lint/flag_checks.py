"""What the tables say of a launch: flags that are unknown, gone, not there yet, repeated, or have a wrong value."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from firsttoken.doctor.lint import values
from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import Edit, Finding, Level
from firsttoken.doctor.lint.launch import Launch, Option
from firsttoken.doctor.lint.table import Flag, FlagTable, nearest, number

_SOURCES = {
    "vLLM": "https://pypi.org/project/vllm/",
    "SGLang": "https://pypi.org/project/sglang/",
    "firsttoken": "docs/reference/cli.md",
}
_USUAL = ("--tp", "--dp", "--pp", "--ep")  # SGLang's own documentation abbreviates these


@cache
def known_names() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """{program: {flag that is none: what takes its place, why, source}}."""
    return tomllib.loads((files(__package__) / "names.toml").read_text(encoding="utf-8"))


def findings(case: Case) -> Iterator[Finding]:
    """Everything that the table says of a launch, in the order of its words."""
    launch = case.launch
    assert launch is not None
    names = known_names().get(case.program, {})
    for option in launch.options:
        if option.flag is None or not launch.table.has(option.flag):
            yield _absent(case, launch, option, names)
        else:
            yield from _given(case, launch, option)
    yield from _repeated(case, launch)
    yield from _stray(case, launch)
    yield from _variables(case, launch.table)


def _absent(case: Case, launch: Launch, option: Option, names: Mapping[str, Mapping[str, Any]]) -> Finding:
    """A flag that this version does not have."""
    table, flag = launch.table, option.flag
    row = names.get(table.normal(option.written).replace("_", "-"))
    near = None if row else table.nearest(option.written)
    several = [] if flag or row else table.abbreviated(option.written)
    since, why = "", ""
    if flag is not None and table.is_later(flag):
        rule, since = "flag-not-there-yet", f"{table.program} {flag.since}"
        what = f"{table.program} {flag.since} and later have {option.written}; this is {table.version}."
        why = "The server stops at a flag that it does not know."
        return _finding(case, option, rule, "error", what, why, table, since=since, edits=(_drop(option),))
    if flag is not None:
        rule, since = "flag-removed", f"{table.program} {flag.gone}"
        what = f"{table.program} {flag.gone} and later have no {option.written}."
    else:
        rule = "flag-unknown"
        what = f"{table.program} {table.version} has no flag {option.written}."
    edits: tuple[Edit, ...] = (_drop(option),)
    if row is not None:
        why = row["why"]
        words = tuple(word.format(value=" ".join(option.values)) for word in row["to"])
        edits = _instead(launch, option, words, bool(row.get("model")))
        what += f" Write {' '.join(words)}." if words else ""
    elif len(several) > 1:
        why = f"It is the beginning of several: {', '.join(each.name for each in several[:6])}."
    elif near is not None:
        why = f"The nearest that there is: {near}."
        found = table.flags[near]
        takes = found.takes_value == bool(option.values)
        edits = (Edit(option.start, option.end, (near, *option.values)),) if takes else (_drop(option),)
    else:
        why = "Nothing that it takes comes near to the name; the server stops at it."
    source = row["source"] if row else ""
    return _finding(case, option, rule, "error", what, why, table, since=since, source=source, edits=edits)


def _instead(launch: Launch, option: Option, words: tuple[str, ...], model: bool) -> tuple[Edit, ...]:
    if model:  # becomes the first word
        if launch.positional:
            return (_drop(option),)
        return (_drop(option), Edit(launch.start, launch.start, words))
    if words and (old := launch.given(words[0].partition(".")[0])) is not None and old is not option:
        return (_drop(option),)  # the right one is there already
    return (Edit(option.start, option.end, words),)


def _given(case: Case, launch: Launch, option: Option) -> Iterator[Finding]:
    """A flag that there is: its value."""
    flag, table = option.flag, launch.table
    assert flag is not None
    value = option.value
    if option.written not in _USUAL and table.find(option.written)[0] is None:
        what = f"{option.written} means {flag.name} as long as no other flag begins so."
        why = "The parser takes the beginning of a name; a later version with another such flag stops at it."
        yield _finding(case, option, "flag-abbreviated", "note", what, why, table)
    if flag.deprecated and number(table.version) >= number(flag.deprecated):
        what = f"{option.written} is deprecated."
        why = "It still works, and warns; a coming version will not have it."
        since = f"{table.program} {flag.deprecated}"
        yield _finding(case, option, "flag-deprecated", "note", what, why, table, since=since)
    if flag.kind in ("switch", "on-off"):
        if value is not None:
            yield _switch_with_value(case, launch, option, flag)
        return
    if value is None:
        if flag.kind != "switch-or-value":
            what = f"{option.written} has no value."
            why = "The next word is another flag, or there is none; the server stops at it."
            yield _finding(case, option, "value-missing", "error", what, why, table, edits=(_drop(option),))
        return
    if "$" in value:
        return
    if (fault := values.wrong(flag, option)) is not None:
        what = f"{option.written} {value}: {fault}"
        why = "The server stops at a value that it cannot read."
        yield _finding(case, option, "value-wrong", "error", what, why, table, edits=values.right_value(flag, option))


def _switch_with_value(case: Case, launch: Launch, option: Option, flag: Flag) -> Finding:
    value = str(option.value)
    off = value.lower() in ("false", "0")
    words: tuple[str, ...] = (option.written,)
    if off:
        words = ("--no-" + flag.name[2:],) if flag.kind == "on-off" and not option.off else ()
    what = f"{option.written} takes no value, and {value} becomes a word that nobody understands."
    why = "It is a switch: given, it is on" + ("; --no-… turns it off." if flag.kind == "on-off" else ".")
    edits = (Edit(option.start, option.end, words),)
    return _finding(case, option, "switch-with-value", "error", what, why, launch.table, edits=edits)


def _repeated(case: Case, launch: Launch) -> Iterator[Finding]:
    """The same flag twice: with other values, or on and off."""
    for name in dict.fromkeys(option.name for option in launch.options if option.flag):
        given = list(launch.all(name))
        first, last = given[0], given[-1]
        if len(given) < 2 or any("." in option.written for option in given) or launch.table.repeats(name):
            continue
        drop = tuple(_drop(option) for option in given[:-1])
        if first.off != last.off:
            what = f"{first.written} and {last.written} contradict each other; the last one wins."
            yield _finding(
                case, last, "contradiction", "error", what, "One of them is not meant.", launch.table, edits=drop
            )
        else:
            same = first.values == last.values
            what = f"{last.written} is given {len(given)} times; the last one wins."
            why = (
                "The others do nothing."
                if same
                else "The others do nothing, and it may not be the last that was meant."
            )
            level: Level = "note" if same else "warn"
            yield _finding(case, last, "repeated", level, what, why, launch.table, edits=drop)


def _stray(case: Case, launch: Launch) -> Iterator[Finding]:
    """Words that stand alone beside the model."""
    named = launch.given("--model") or launch.given("--model-path")
    allowed = launch.table.positional
    if named and case.program in ("vllm", "sglang"):
        allowed = 0  # a second model is told of elsewhere
    words = launch.positional[allowed:] if allowed is not None else []
    for position, word in words:
        if "$" in word:
            continue
        what = f"The word {word!r} belongs to no flag."
        why = "The program stops at it. Often a quote or a line's backslash is missing before it."
        table = launch.table
        yield Finding(
            rule="stray-word", level="error", what=what, why=why, source=_SOURCES[table.program], line=case.line,
            edits=(Edit(position, position + 1),),
        )  # fmt: skip


def _variables(case: Case, table: FlagTable) -> Iterator[Finding]:
    """Settings of the environment that this version does not read."""
    for name in case.variables:
        if not table.variable_prefix or not name.startswith(table.variable_prefix):
            continue
        row = table.variables.get(name)
        if row is not None and not table.is_gone(Flag(name=name, kind="str", gone=row.get("gone", ""))):
            continue
        instead = _INSTEAD.get(name, "")
        near = None if row or instead else nearest(name, table.variables)
        gone = f"{table.program} {row['gone']}" if row else ""
        what = (
            f"{gone} and later read no {name}." if row else f"{table.program} {table.version} reads no variable {name}."
        )
        why = instead or (f"The nearest is {near}." if near else "It does nothing; at most it is warned of.")
        yield Finding(
            rule="variable-removed" if row else "variable-unknown", level="warn", what=what, why=why, since=gone,
            source=_SOURCES[table.program], line=case.line, variables=(name,),
        )  # fmt: skip


_INSTEAD = {
    "VLLM_USE_V1": "V1 is the only engine; the setting does nothing.",
    "VLLM_ATTENTION_BACKEND": "--attention-backend took its place.",
    "VLLM_TORCH_PROFILER_DIR": "--profiler-config took its place.",
    "VLLM_FLASH_ATTN_VERSION": "--attention-config took its place.",
}


def _drop(option: Option) -> Edit:
    return Edit(option.start, option.end)


def _finding(
    case: Case,
    option: Option,
    rule: str,
    level: Level,
    what: str,
    why: str,
    table: FlagTable,
    *,
    since: str = "",
    source: str = "",
    edits: tuple[Edit, ...] = (),
) -> Finding:
    return Finding(
        rule=rule, level=level, what=what, why=why, since=since, source=source or _SOURCES[table.program],
        line=case.line, edits=edits, whole=bool(edits) or level == "note",
    )  # fmt: skip
