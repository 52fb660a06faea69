#!/usr/bin/env python3
"""Writes a table of a server's launch flags, as `firsttoken lint` reads it, from unpacked packages of it.

    scripts/launch_flags.py vllm 0.10.2=FOLDER 0.33.0=FOLDER > src/firsttoken/doctor/lint/tables/vllm.toml

Each folder is an unpacked wheel or sdist of that version, oldest first. Nothing of it is run or imported: the flags are
read from its syntax trees. Names, kinds, choices and versions are kept; texts of help are not.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCES = {
    "vllm": (
        "vllm/engine/arg_utils.py",
        "vllm/engine/async_llm_engine.py",
        "vllm/entrypoints/openai/cli_args.py",
        "vllm/entrypoints/common/cli_args.py",
        "vllm/entrypoints/openai/api_server.py",
        "vllm/entrypoints/cli/serve.py",
        "vllm/entrypoints/cli/launch.py",
        "vllm/scripts.py",
    ),
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py"),
}
TYPES = {  # where names of annotations and of choices are looked up
    "vllm": ("vllm/config.py", "vllm/config/**/*.py", *SOURCES["vllm"]),
    "sglang": ("sglang/srt/arg_groups/*.py", *SOURCES["sglang"]),
}
WRAPPERS = ("Union", "Optional", "SkipValidation", "Annotated")
SWITCHES = ("store_true", "store_false", "StoreTrue", "StoreConst", "DeprecatedAction")
NUMBERS = {"human_readable_int", "human_readable_int_or_auto"}


@dataclass
class Flag:
    """One flag of one version."""

    kind: str
    names: list[str] = field(default_factory=list)  # others, the short ones too
    choices: list[str] = field(default_factory=list)  # empty: any
    deprecated: bool = False


@dataclass
class Package:
    """The parts of an unpacked package that declare flags."""

    tool: str
    trees: list[ast.Module]
    types: dict[str, ast.expr] = field(default_factory=dict)  # names of Literals, lists and unions
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)


def load(tool: str, folder: Path) -> Package:
    def trees(patterns: tuple[str, ...]) -> list[ast.Module]:
        paths = dict.fromkeys(path for pattern in patterns for path in sorted(folder.glob(pattern)))
        return [ast.parse(path.read_text()) for path in paths]

    package = Package(tool, trees(SOURCES[tool]))
    for tree in trees(TYPES[tool]):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                package.classes.setdefault(node.name, node)
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                package.types.setdefault(statement.targets[0].id, statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                package.types.setdefault(statement.target.id, statement.value)
    return package


def flags_of(package: Package) -> dict[str, Flag]:
    """Every flag of the server's command, by its longest name."""
    found: dict[str, Flag] = {}
    for tree in package.trees:
        sources, tokens = kwarg_sources(tree), readable_numbers(tree)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
                names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and str(arg.value)[:1] == "-"]
                if names:
                    keep(found, names, argument(package, call, sources, tokens))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in ("FrontendArgs", "BaseFrontendArgs"):
                for name, annotation in fields(node):
                    keep(found, [dashed(name)], Flag(*kind_of(package, annotation)))
            elif isinstance(node, ast.ClassDef):
                for name, annotation in fields(node):
                    annotated(package, found, name, annotation)
    return found


def keep(found: dict[str, Flag], names: list[str], flag: Flag) -> None:
    names = [name.replace("_", "-") for name in names]
    first = next((name for name in names if name.startswith("--")), names[0])
    if first == "--help":
        return
    flag.names = sorted({*names, *(found[first].names if first in found else ())} - {first})
    found[first] = flag


def dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and "ClassVar" not in ast.unparse(statement.annotation):
            yield ast.unparse(statement.target), statement.annotation


def kwarg_sources(tree: ast.Module) -> dict[str, tuple[str, str | None]]:
    """`x_kwargs = get_kwargs(Config)`, with or without a field behind it: {variable: (Config, field)}."""
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        value, key = node.value, None
        if isinstance(value, ast.Subscript):
            value, key = value.value, getattr(value.slice, "value", None)
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "get_kwargs":
            found[node.targets[0].id] = (getattr(value.args[0], "id", ""), key)
        elif isinstance(value, ast.Name) and value.id in found and key:
            found[node.targets[0].id] = (found[value.id][0], key)
    return found


def readable_numbers(tree: ast.Module) -> set[str]:
    """Fields whose value may be written 32k or 32K."""
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    sets = [node.value for node in named if getattr(node.targets[0], "id", "") == "human_readable_int_args"]
    found = {str(item.value) for item in ast.walk(sets[0]) if isinstance(item, ast.Constant)} if sets else set()
    return found | ({"max_model_len"} if "human_readable_int" in ast.dump(tree) else set())


def argument(package: Package, call: ast.Call, sources: dict[str, tuple[str, str | None]], tokens: set[str]) -> Flag:
    """An `add_argument` call, whose keywords are written out or come from a field of a config class."""
    flag = Flag("str")
    for keyword in call.keywords:
        if keyword.arg is None:
            for node in ast.walk(keyword.value):
                config = name = None
                if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in sources:
                    config, name = sources[node.value.id][0], getattr(node.slice, "value", None)  # type: ignore[attr-defined]
                elif isinstance(node, ast.Name) and sources.get(node.id, ("", None))[1]:
                    config, name = sources[node.id]
                if config and name:
                    flag = Flag(*kind_of(package, field_annotation(package, config, name)))
                    flag.kind = "tokens" if name in tokens else flag.kind
                    break
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    action = ast.unparse(given["action"]) if "action" in given else ""
    if any(name in action for name in SWITCHES):
        flag.kind = "switch"
    elif "BooleanOptional" in action or "StoreBoolean" in action:
        flag.kind = "on-off" if "BooleanOptional" in action else "switch-or-value"
    kind = {"int": "int", "float": "float", "json.loads": "json"}.get(ast.unparse(given.get("type", ast.Constant(""))))
    if kind:
        flag.kind = kind
    elif getattr(given.get("type"), "id", "") in NUMBERS:
        flag.kind = "tokens"
    nargs = getattr(given.get("nargs"), "value", None)
    if nargs in ("+", "*") or isinstance(nargs, int):
        flag.kind = "list"
    elif nargs == "?":
        flag.kind = "switch-or-value"
    if "choices" in given:
        flag.choices = strings(package, given["choices"])
    told = [given[name] for name in ("help", "action") if name in given]
    told += [keyword.value for keyword in call.keywords if keyword.arg is None and isinstance(keyword.value, ast.Dict)]
    flag.deprecated = "deprecated" in given or any("deprecat" in ast.unparse(value).lower() for value in told)
    return flag


def annotated(package: Package, found: dict[str, Flag], name: str, annotation: ast.expr) -> None:
    """SGLang's `field: A[type, "help" | Arg(...)]`."""
    if not (isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") in ("A", "Annotated")):
        return
    if not isinstance(annotation.slice, ast.Tuple):
        return
    inner, *notes = annotation.slice.elts
    calls = [note for note in notes if isinstance(note, ast.Call) and getattr(note.func, "id", "") == "Arg"]
    texts = [note for note in notes if isinstance(note, ast.Constant | ast.JoinedStr | ast.BinOp)]
    if not calls and not texts:
        return
    given = {keyword.arg: keyword.value for call in calls for keyword in call.keywords if keyword.arg}
    if getattr(given.get("no_cli"), "value", False):
        return
    kind, names, choices = kind_of(package, inner)
    if kind == "on-off":
        kind = "switch"
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "BooleanOptional" in action:
        kind = "on-off"
    elif any(name in action for name in SWITCHES):
        kind = "switch"
    nargs = getattr(given.get("nargs"), "value", None)
    if "type_parser" in given:
        parser = ast.unparse(given["type_parser"])
        kind = "tokens" if parser in NUMBERS else "json" if "json" in parser else "str"
    if nargs in ("+", "*"):
        kind = "list"
    elif nargs == "?":
        kind = "switch-or-value"
    if "choices" in given:
        choices = strings(package, given["choices"])
    alias = strings(package, given["aliases"]) if "aliases" in given else []
    first = getattr(given.get("cli_name"), "value", None) or dashed(name)
    text = ast.unparse(annotation).lower()
    keep(found, [first, *alias], Flag(kind, names, choices, "deprecat" in text))


def field_annotation(package: Package, config: str, name: str) -> ast.expr | None:
    node = package.classes.get(config)
    while node is not None:
        for found, annotation in fields(node):
            if found == name:
                return annotation
        bases = [package.classes.get(ast.unparse(base)) for base in node.bases]
        node = next((base for base in bases if base), None)
    return None


def kind_of(package: Package, annotation: ast.expr | None) -> tuple[str, list[str], list[str]]:
    """What a value of this annotation looks like on the command line, and its choices: (kind, [], choices)."""
    parts = list(members(package, annotation)) if annotation is not None else []
    names = {ast.unparse(part) for part in parts}
    plain = {name.split("[")[0].split(".")[-1] for name in names}
    if plain & {name for name in package.classes if name.endswith(("Config", "ConfigArgs"))}:
        return "json", [], []
    if {"bool", "str"} <= plain:
        return "switch-or-value", [], []
    if "bool" in plain:
        return "on-off", [], []
    for part in parts:
        if isinstance(part, ast.Subscript) and ast.unparse(part.value) == "Literal":
            values = literals(package, part)
            number = all(value.lstrip("-").isdigit() for value in values)
            return "int" if number else "str", [], [] if "str" in plain else values
    if plain & {"list", "List", "tuple", "Tuple", "set", "Set", "Sequence"}:
        return "list", [], []
    for kind in ("int", "float"):
        if kind in plain:
            return kind, [], []
    if plain & {"dict", "Dict", "Mapping"}:
        return ("str" if "str" in plain else "json"), [], []
    return "str", [], []


def literals(package: Package, node: ast.Subscript) -> list[str]:
    """The values of a Literal; a Literal's name in it stands for its values. Nothing where one cannot be told."""
    values: list[str] = []
    for option in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        inner = package.types.get(option.id) if isinstance(option, ast.Name) else None
        if isinstance(option, ast.Constant):
            values.append(str(option.value))
        elif isinstance(inner, ast.Subscript) and (more := literals(package, inner)):
            values += more
        else:
            return []
    return values


def members(package: Package, annotation: ast.expr) -> Iterator[ast.expr]:
    """The parts of a union, with names of unions and Literals replaced by what they stand for."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        yield from members(package, annotation.left)
        yield from members(package, annotation.right)
    elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).split(".")[-1] in WRAPPERS:
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        for part in inner[:1] if ast.unparse(annotation.value).endswith("Annotated") else inner:
            yield from members(package, part)
    elif isinstance(annotation, ast.Name) and annotation.id in package.types and annotation.id not in package.classes:
        target = package.types[annotation.id]
        if isinstance(target, ast.Subscript | ast.BinOp | ast.Name):
            yield from members(package, target)
        else:
            yield annotation
    else:
        yield annotation


def strings(package: Package, node: ast.expr, depth: int = 0) -> list[str]:
    """The constants of a list, of a list's name, or of a sum of lists; nothing where it is made when it runs."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [str(item.value) for item in node.elts if isinstance(item, ast.Constant)]
    if isinstance(node, ast.Name) and depth < 5 and node.id in package.types:
        return strings(package, package.types[node.id], depth + 1)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("list", "sorted", "get_args") and node.args:
        argument = node.args[0]
        if isinstance(argument, ast.Name) and argument.id in package.types:
            target = package.types[argument.id]
            if isinstance(target, ast.Subscript):
                return kind_of(package, target)[2]
            return strings(package, target, depth + 1)
    return []


def variables_of(folder: Path) -> set[str]:
    """Names of the environment variables that vLLM knows; it warns of others that begin like them."""
    path = folder / "vllm" / "envs.py"
    if not path.exists():
        return set()
    for node in ast.walk(ast.parse(path.read_text())):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if getattr(target, "id", "") == "environment_variables" and isinstance(value, ast.Dict):
            return {
                str(key.value) for key in value.keys if isinstance(key, ast.Constant) and str(key.value)[:5] == "VLLM_"
            }
    return set()


def merge(versions: dict[str, dict[str, Flag]]) -> dict[str, dict[str, Any]]:
    """One row a flag: its newest form, and the versions that have it. A flag that got another first name is one row."""
    order = list(versions)
    rows: dict[str, dict[str, Any]] = {}
    for number, (version, flags) in enumerate(versions.items()):
        for name, flag in flags.items():
            names = {name, *flag.names}
            older = [key for key, row in rows.items() if names & {key, *row.get("also", ())}]
            known = rows.pop(min(older, key=lambda key: order.index(rows[key]["since"]))) if older else None
            row: dict[str, Any] = {"kind": flag.kind}
            if flag.names:
                row["also"] = flag.names
            if flag.choices:
                row["choices"] = flag.choices
            if flag.deprecated:
                row["deprecated"] = known["deprecated"] if known and "deprecated" in known else version
            row["since"] = known["since"] if known else version
            row["last"] = number
            rows[name] = row
    for row in rows.values():
        last = row.pop("last")
        if last < len(order) - 1:
            row["gone"] = order[last + 1]
            row.pop("choices", None)
    return rows


def merge_variables(versions: dict[str, set[str]]) -> dict[str, dict[str, str]]:
    order = list(versions)
    rows: dict[str, dict[str, str]] = {}
    for name in sorted(set().union(*versions.values())):
        having = [number for number, known in enumerate(versions.values()) if name in known]
        rows[name] = {"since": order[having[0]]}
        if having[-1] < len(order) - 1:
            rows[name]["gone"] = order[having[-1] + 1]
    return rows


def main() -> int:
    tool, *pairs = sys.argv[1:]
    folders = {version: Path(folder) for version, _, folder in (pair.partition("=") for pair in pairs)}
    rows = merge({version: flags_of(load(tool, folder)) for version, folder in folders.items()})
    print(f"# Launch flags of {tool}, made by scripts/launch_flags.py from its packages; edit that, not this.")
    print(f"versions = {json.dumps(list(folders))}")
    print_table("flags", rows)
    if variables := merge_variables({version: variables_of(folder) for version, folder in folders.items()}):
        print_table("variables", variables)
    return 0


def print_table(title: str, rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n[{title}]")
    for name, row in sorted(rows.items()):
        inner = ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in row.items())
        print(f'"{name}" = {{ {inner} }}')


if __name__ == "__main__":
    sys.exit(main())
