"""Takes wrappers off a command: sudo, env, nohup, numactl, `bash -c`, `uv run`, docker and their like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from firsttoken.doctor.lint.shell import join

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
# wrapper: (flags that take a word of their own, words of its own before the command)
_PREFIXES: dict[str, tuple[set[str], int]] = {
    "sudo": ({"-u", "-g", "-h", "-p"}, 0),
    "doas": ({"-u"}, 0),
    "env": ({"-u", "-C", "-S"}, 0),
    "nohup": (set(), 0),
    "setsid": (set(), 0),
    "exec": ({"-a"}, 0),
    "time": ({"-f", "-o"}, 0),
    "nice": ({"-n"}, 0),
    "ionice": ({"-c", "-n", "-p"}, 0),
    "chrt": (set(), 1),
    "taskset": (set(), 1),
    "numactl": ({"-N", "-m", "-C", "-i", "-p"}, 0),
    "stdbuf": ({"-o", "-e", "-i"}, 0),
    "timeout": ({"-k", "-s"}, 1),
    "watch": ({"-n"}, 0),
    "uvx": ({"--from", "--with", "-p", "--python"}, 0),
    "accelerate": (set(), 0),
}
_RUNNERS: dict[tuple[str, str], set[str]] = {  # `uv run [flags] command`
    ("uv", "run"): {"--with", "--python", "-p", "--extra", "--project", "--directory", "--env-file", "--group"},
    ("poetry", "run"): set(),
    ("pipx", "run"): {"--spec", "--python"},
    ("conda", "run"): {"-n", "--name", "-p", "--prefix", "--cwd"},
    ("mamba", "run"): {"-n", "--name", "-p", "--prefix"},
    ("micromamba", "run"): {"-n", "--name", "-p", "--prefix"},
    ("hatch", "run"): set(),
}
_LAUNCHERS = {
    "srun",
    "mpirun",
    "screen",
    "tmux",
    "kubectl",
    "ssh",
    "oc",
}  # their flags are many; the program is looked for
_PROGRAM = re.compile(r"(?:^|[\s/;])(vllm|sglang|firsttoken|nvidia-smi|cpupower|python[\d.]*)(?=\s|$)")
_SHELLS = {"bash", "sh", "zsh", "dash"}
_CONTAINERS = {"docker", "podman", "nerdctl"}
_DOCKER_SWITCHES = {
    "-d", "--detach", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-dit", "-itd", "-id", "-di", "-td", "-dt",
    "--rm", "--privileged", "--init", "-P", "--publish-all", "--read-only", "--no-healthcheck", "--oom-kill-disable",
    "--sig-proxy", "--disable-content-trust", "-q", "--quiet",
}  # fmt: skip
_SERVER_IMAGES = (  # (what the image's name has, the words that its entry point is)
    ("vllm/vllm-openai", ("vllm", "serve")),
    ("vllm-openai", ("vllm", "serve")),
    ("rocm/vllm-openai", ("vllm", "serve")),
)


@dataclass(slots=True)
class Container:
    """What surrounds the command in a container."""

    image: str
    options: list[tuple[str, str]] = field(default_factory=list)  # (flag, value), a switch's value is ""
    entry: tuple[str, ...] = ()  # what the image runs where the command does not say

    @property
    def tag(self) -> str:
        name = self.image.rsplit("/", 1)[-1].split("@")[0]
        return name.partition(":")[2]

    def values(self, *flags: str) -> list[str]:
        return [value for flag, value in self.options if flag in flags]


Wrap = Callable[[list[str], tuple[str, ...], tuple[str, ...]], list[str]]
"""Given corrected words, settings to leave out and flags for the container: the whole command."""


@dataclass(slots=True)
class Inner:
    """A command without its wrappers, and how to put them back around other words."""

    words: list[str]
    variables: dict[str, str]
    wrap: Wrap
    container: Container | None = None
    nested: str | None = None  # text of `bash -c`, which holds commands of its own


def unwrap(words: list[str]) -> Inner:
    """The command inside, with the settings that the wrappers give it."""
    inner = Inner(list(words), {}, lambda new, dropped, outer: new)
    while (step := _peel(inner.words)) is not None:
        taken, rest, variables, container, nested = step
        entry = container.entry if container else ()
        inner = Inner(
            [*entry, *rest],
            inner.variables | variables,
            _wrapper(inner.wrap, taken, container),
            container or inner.container,
            nested,
        )
        if nested is not None:
            break
    return inner


def _wrapper(around: Wrap, taken: list[str], container: Container | None) -> Wrap:
    entry = container.entry if container else ()

    def wrap(new: list[str], dropped: tuple[str, ...], outer: tuple[str, ...]) -> list[str]:
        skip = len(entry) if tuple(new[: len(entry)]) == entry else 0
        kept = _without(taken, dropped)
        if container is not None:  # the image is the last of its words
            kept[-1:-1] = outer
        return around([*kept, *new[skip:]], dropped, () if container else outer)

    return wrap


def _without(words: list[str], dropped: tuple[str, ...]) -> list[str]:
    """Leaves out `NAME=value`, and a flag such as `-e` that gives it."""
    kept: list[str] = []
    for word in words:
        name = word.removeprefix("--env=").partition("=")[0]
        if name in dropped and "=" in word:
            if kept and kept[-1] in ("-e", "--env"):
                kept.pop()
            continue
        kept.append(word)
    return kept


Step = tuple[list[str], list[str], dict[str, str], Container | None, str | None]


def _peel(words: list[str]) -> Step | None:
    """One wrapper: its own words, the words after it, settings, the container and a shell's text. None without one."""
    if len(words) < 2:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name in _CONTAINERS and words[1] in ("run", "exec", "create"):
        return _container(words, words[1] == "exec")
    if name in _SHELLS:
        for position, word in enumerate(words[1:], 1):
            if re.fullmatch(r"-\w*c", word) and position + 1 < len(words):
                return words[: position + 1], [words[position + 1]], {}, None, words[position + 1]
            if not word.startswith("-"):
                break
        return None
    if name in _LAUNCHERS:
        return _launched(words)
    if (runner := _RUNNERS.get((name, words[1]))) is not None:
        end = _after_flags(words, 2, runner)
    elif name in _PREFIXES:
        valued, own = _PREFIXES[name]
        end = _after_flags(words, 1, valued) + own
        if name == "accelerate":
            end = 1 + (words[1] == "launch")
    elif _ASSIGNMENT.match(words[0]):
        end = 0
    else:
        return None
    variables = {}
    while end < len(words) and _ASSIGNMENT.match(words[end]):
        key, _, value = words[end].partition("=")
        variables[key] = value
        end += 1
    return (words[:end], words[end:], variables, None, None) if end < len(words) else None


def _launched(words: list[str]) -> Step | None:
    for position, word in enumerate(words[1:], 1):
        if _PROGRAM.search(word):
            nested = word if " " in word else None
            return words[:position], [word] if nested else words[position:], {}, None, nested
    return None


def _after_flags(words: list[str], start: int, valued: set[str]) -> int:
    position = start
    while position < len(words) and words[position].startswith("-"):
        if words[position] == "--":
            return position + 1
        position += 2 if words[position] in valued else 1
    return min(position, len(words))


def _container(words: list[str], running: bool) -> Step | None:
    options: list[tuple[str, str]] = []
    variables: dict[str, str] = {}
    position = 2
    while position < len(words) and words[position].startswith("-"):
        flag, equals, value = words[position].partition("=")
        if (flag in _DOCKER_SWITCHES and not equals) or equals:
            position += 1
        else:
            value = words[position + 1] if position + 1 < len(words) else ""
            position += 2
        options.append((flag, value))
        if flag in ("-e", "--env"):
            key, _, setting = value.partition("=")
            variables[key] = setting
    if position >= len(words):
        return None
    image = words[position]
    container = Container(image, options)
    entry = next((value for flag, value in options if flag == "--entrypoint"), None)
    if entry is not None:
        container.entry = tuple(entry.split())
    elif not running:
        container.entry = next((run for part, run in _SERVER_IMAGES if part in image), ())
    return words[: position + 1], words[position + 1 :], variables, container, None


def text_of(words: list[str], variables: dict[str, str]) -> str:
    """The command line, with its own settings before it."""
    settings = [f"{name}={join([value]) if value else ''}" for name, value in variables.items()]
    return " ".join([*settings, *([join(words)] if words else [])])
