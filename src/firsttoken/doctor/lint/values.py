"""Values of flags: whether the server can read them, and what was probably meant."""

from __future__ import annotations

import json

from firsttoken.doctor.lint.finding import Edit
from firsttoken.doctor.lint.launch import Option
from firsttoken.doctor.lint.rules import quantity
from firsttoken.doctor.lint.table import Flag, nearest


def wrong(flag: Flag, option: Option) -> str | None:
    """What is wrong with a value; None where nothing is."""
    value = str(option.value)
    if flag.check is not None:
        return flag.check(value)
    if flag.choices and flag.kind != "list" and value not in flag.choices:
        near = nearest(value, flag.choices)
        some = ", ".join(flag.choices[:8]) + (", …" if len(flag.choices) > 8 else "")
        return f"it takes {some}." + (f" The nearest is {near}." if near else "")
    if flag.kind == "int" and not _whole(value):
        return "it takes a whole number."
    if flag.kind == "float" and quantity(value) is None:
        return "it takes a number."
    if flag.kind == "tokens" and quantity(value) is None and value != "auto":
        return "it takes a number of tokens, such as 32768 or 32K."
    if flag.kind == "json" and "." not in option.written and not value.startswith("@"):
        try:
            json.loads(value)
        except ValueError:
            return "it takes a JSON object, in single quotes and with double quotes inside."
    return None


def _whole(value: str) -> bool:
    try:
        int(value)
    except ValueError:
        return False
    return True


def right_value(flag: Flag, option: Option) -> tuple[Edit, ...]:
    """The value that was probably meant in its place; without one the flag goes."""
    value = str(option.value)
    if flag.choices and (near := nearest(value, flag.choices)):
        return (Edit(option.start, option.end, (option.written, near)),)
    size = quantity(value)
    if flag.kind == "int" and size is not None and size == int(size):
        return (Edit(option.start, option.end, (option.written, str(int(size)))),)
    if flag.kind == "tokens" and (digits := value.replace(",", "").replace("_", "").rstrip("bBtokensi ")).isdigit():
        return (Edit(option.start, option.end, (option.written, digits)),)
    if flag.kind == "json":
        quoted = value.replace("'", '"').replace("True", "true").replace("False", "false").replace("None", "null")
        try:
            json.loads(quoted)
        except ValueError:
            return (Edit(option.start, option.end),)
        return (Edit(option.start, option.end, (option.written, quoted)),)
    return (Edit(option.start, option.end),)
