"""Texts that commands stand in: scripts, histories, compose files and manifests, Python, Markdown, Dockerfiles."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import yaml

from firsttoken.doctor.lint import python_checks
from firsttoken.doctor.lint.linter import Checked, Linter
from firsttoken.doctor.lint.shell import ShellCommand, join
from firsttoken.errors import ConfigError

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>```+|~~~+) *(?P<language>\w*).*$")
_LANGUAGES = {"bash": "sh", "sh": "sh", "shell": "sh", "console": "sh", "zsh": "sh", "python": "py", "py": "py"}
_LANGUAGES |= {"yaml": "yaml", "yml": "yaml", "dockerfile": "docker"}


def check_source(linter: Linter, text: str, name: str) -> list[Checked]:
    """Every command in a file's text. Its kind is told by the name, else by the text. Raises ConfigError."""
    kind = kind_of(text, name)
    if kind == "yaml":
        return _yaml(linter, text, name)
    if kind == "py":
        return python_checks.check_python(linter, text)
    if kind == "md":
        return _markdown(linter, text)
    if kind == "docker":
        return _dockerfile(linter, text)
    return linter.check_text(text)


def kind_of(text: str, name: str) -> str:
    """`yaml`, `py`, `md`, `docker` or `sh`."""
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return "yaml"
    if suffix in (".py", ".md"):
        return suffix[1:]
    if path.name.lower().startswith(("dockerfile", "containerfile")):
        return "docker"
    if suffix:
        return "sh"
    if re.search(r"^(services|apiVersion):", text, re.MULTILINE):
        return "yaml"
    if re.search(r"^(from [\w.]+ import |import (torch|vllm|transformers|sglang|openai)\b)", text, re.MULTILINE):
        return "py"
    if re.search(r"^```(bash|sh|shell|console|python|yaml)", text, re.MULTILINE):
        return "md"
    if re.search(r"^FROM \S+", text, re.MULTILINE) and re.search(r"^(CMD|ENTRYPOINT|RUN) ", text, re.MULTILINE):
        return "docker"
    return "sh"


def _markdown(linter: Linter, text: str) -> list[Checked]:
    """The fenced parts, each as a file of its own; line numbers are the page's."""
    found: list[Checked] = []
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        opened = _FENCE.match(lines[position])
        if opened is None:
            position += 1
            continue
        end = position + 1
        while end < len(lines) and not lines[end].strip().startswith(opened["mark"]):
            end += 1
        language = _LANGUAGES.get(opened["language"].lower())
        part = "\n".join(lines[position + 1 : end])
        if language:
            names = {"sh": "part.sh", "py": "part.py", "yaml": "part.yaml", "docker": "Dockerfile"}
            try:
                inner = check_source(linter, part, names[language])
            except ConfigError:
                inner = []  # a fragment that stands for itself
            for checked in inner:
                checked.line += position + 1
            found += inner
        position = end + 1
    return found


def _dockerfile(linter: Linter, text: str) -> list[Checked]:
    """RUN, CMD and ENTRYPOINT, in either form; ENV as settings."""
    found: list[Checked] = []
    entry: list[str] = []
    joined = re.sub(r"\\\n", lambda match: " \x00", text)
    line = 0
    for raw in joined.splitlines():
        line += 1
        here, line = line, line + raw.count("\x00")
        match = re.match(r"\s*(RUN|CMD|ENTRYPOINT|ENV)\s+(.*)$", raw.replace("\x00", " "), re.IGNORECASE)
        if match is None:
            continue
        word, rest = match[1].upper(), match[2]
        if word == "ENV":
            rest = "export " + (rest if "=" in rest.split()[0] else "=".join(rest.split(None, 1)))
        elif rest.startswith("["):
            try:
                words = [str(part) for part in json.loads(rest)]
            except ValueError:
                continue
            if word == "ENTRYPOINT":
                entry = words
                continue
            rest = join([*entry, *words] if word == "CMD" else words)
            entry = []
        for checked in linter.check_text(rest):
            checked.line = here
            found.append(checked)
    if entry:
        found += linter.check_text(join(entry))
    return found


def _yaml(linter: Linter, text: str, name: str) -> list[Checked]:
    """Compose services and Kubernetes containers: their commands as if they were run in that image."""
    try:
        documents = [document for document in yaml.compose_all(text, Loader=yaml.SafeLoader) if document]
        values = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        place = f" in line {where.line + 1}" if where else ""
        raise ConfigError(f"{name} is not YAML: {getattr(error, 'problem', error)}{place}.") from None
    found: list[Checked] = []
    for node, value in zip(documents, [value for value in values if value is not None], strict=False):
        for line, service in _services(node, value):
            found += _service(linter, service, line)
    return found


def _services(node: yaml.Node, value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every mapping that has a command or an image, with the line of its command."""
    if isinstance(value, dict) and isinstance(node, yaml.MappingNode):
        if "image" in value and ("command" in value or "args" in value or "entrypoint" in value):
            lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
            yield min(lines.get(key, 10**9) for key in ("command", "args", "entrypoint")), value
        for key, child in node.value:
            inner = value.get(key.value) if isinstance(key, yaml.ScalarNode) else None
            yield from _services(child, inner)
    elif isinstance(value, list) and isinstance(node, yaml.SequenceNode):
        for child, inner in zip(node.value, value, strict=True):
            yield from _services(child, inner)


def _service(linter: Linter, service: dict[str, Any], line: int) -> list[Checked]:
    """One service, checked as the docker command that it stands for."""
    kubernetes = "args" in service or isinstance(service.get("env"), list)
    entry = _words(service.get("entrypoint") or (service.get("command") if kubernetes else None))
    command = _words(service.get("args") if kubernetes else service.get("command"))
    options: list[str] = []
    for name, value in _settings(service.get("environment") or service.get("env")):
        options += ["-e", f"{name}={value}"]
    if entry:
        options += ["--entrypoint", entry[0]]
        command = [*entry[1:], *command]
    for port in service.get("ports") or ():
        if isinstance(port, str | int):
            options += ["-p", str(port)]
        elif isinstance(port, dict) and "target" in port:
            options += ["-p", f"{port.get('published', port['target'])}:{port['target']}"]
    options += ["--ipc", str(service["ipc"])] if "ipc" in service else []
    options += ["--shm-size", str(service["shm_size"])] if "shm_size" in service else []
    options += ["--network", str(service["network_mode"])] if "network_mode" in service else []
    # what gives cards and ports in these files has forms of its own, which are not judged
    words = ["docker", "run", *options, str(service["image"]), *command]
    inner = ShellCommand(words, {}, {}, line, "")
    found = linter.check(inner)
    for checked in found:
        checked.text = join(command)
        if checked.corrected and str(service["image"]) in shlex.split(checked.corrected):
            rest = shlex.split(checked.corrected)
            image = rest.index(str(service["image"]))
            dropped = [f"environment {word.partition('=')[0]}" for word in options if "=" in word and word not in rest]
            checked.corrected = join(rest[image + 1 :]) + ("".join(f"   # without {name}" for name in dropped))
    return found


def _words(value: Any) -> list[str]:
    """A command in either form, as words. `$$` is a compose file's dollar."""
    if value is None:
        return []
    if isinstance(value, str):
        return shlex.split(value.replace("$$", "$").replace("\\\n", " "))
    return [str(word).replace("$$", "$") for word in value]


def _settings(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield from ((str(name), "" if setting is None else str(setting)) for name, setting in value.items())
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                name, _, setting = item.partition("=")
                yield name, setting
            elif isinstance(item, dict) and "name" in item:
                yield str(item["name"]), str(item.get("value", ""))
