"""What can be tried on an engine: a data file of its knobs, and how settings become a command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import msgspec

from firsttoken.errors import ConfigError
from firsttoken.tune.arms import Settings, Value

Affects = Literal[
    "chunk", "step", "batch", "block", "prefix", "launches", "graphs", "table", "weights", "kv", "workers", "threads"
]
ENGINES = ("firsttoken", "vllm")

_CORES = {"cores": 1, "half the cores": 2}  # what this machine's cores are divided by


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One flag of an engine."""

    name: str  # without dashes; also its key in a config file
    values: dict[str, list[Value]]  # to try, by device
    affects: Affects
    what: str
    what_zh: str = ""
    default: dict[str, Value] = {}  # the engine's own, by device, where it is always the same
    off: str | None = None  # how false is written; None: --no-NAME, "": by leaving the flag out
    bytes: dict[str, float] = {}  # an element, by value
    capability: dict[str, float] = {}  # the least compute capability, by value
    numerics: bool = False  # whether answers can change

    def flag(self, value: Value) -> str:
        if isinstance(value, bool):
            return f"--{self.name}" if value else (f"--no-{self.name}" if self.off is None else self.off)
        return f"--{self.name} {shlex.quote(str(value))}"


class Space(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine as it is launched, and its knobs."""

    name: str
    command: str  # with {python}, {model}, {port} and {flags}
    show: str  # as people type it, with {model} and {flags}
    config: Literal["toml", "yaml"]
    knob: list[Knob]
    quality: bool = False  # whether `bench quality` can run it

    def find(self, name: str) -> Knob:
        """Raises ConfigError where there is no such knob."""
        known = {knob.name: knob for knob in self.knob}
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
            raise ConfigError(f"There is no knob {name!r} of {self.name}: {hint}")
        return known[name]

    def flags(self, settings: Mapping[str, Value], always: str = "") -> str:
        """The settings as flags, in the knobs' order; `always` stands before them."""
        words = [self.find(name).flag(value) for name, value in settings.items()]
        order = [knob.name for knob in self.knob]
        words = [word for _, word in sorted(zip(map(order.index, settings), words, strict=True))]
        return " ".join(word for word in (always, *words) if word)

    def launch(self, model: str, port: int, settings: Settings, always: str = "") -> str:
        """The command line that serves."""
        flags = self.flags(settings, always)
        fields = {"python": shlex.quote(sys.executable), "model": shlex.quote(model), "port": port, "flags": flags}
        try:
            return self.command.format(**fields)
        except (KeyError, IndexError, ValueError):
            raise ConfigError(
                f"The command {self.command!r} may hold {{model}}, {{port}} and {{flags}} and no other braces."
            ) from None

    def shown(self, model: str, settings: Settings, always: str = "") -> str:
        """The command as people type it."""
        return self.show.format(model=shlex.quote(model), flags=self.flags(settings, always)).strip()


def load_space(name: str, file: Path | None = None, command: str | None = None) -> Space:
    """An engine's space, from the file that ships or from one's own; `command` replaces its. Raises ConfigError."""
    path = file or Path(__file__).with_name("spaces") / f"{name}.toml"
    try:
        space = msgspec.toml.decode(path.read_bytes(), type=Space)
    except OSError as error:
        raise ConfigError(f"The knobs of {name} cannot be read from {path} ({error.strerror}).") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"The file of knobs {path} is wrong: {error}.") from None
    if command is None:
        return space
    if "{port}" not in command or "{flags}" not in command:
        raise ConfigError("--command needs {port} and {flags}, where each server's own are put.")
    return msgspec.structs.replace(space, command=command, show=command.replace("{port}", "8000"))


def parse_setting(space: Space, text: str) -> tuple[str, Value]:
    """ "cpu-threads=1" as a knob and its value. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise ConfigError(f"--set {text!r} is not a setting: write KNOB=VALUE.")
    return space.find(name).name, parse_value(value)


def parse_values(knob: Knob, text: str) -> list[Value]:
    """Values for a knob, with commas between them; with semicolons where one value has commas of its own."""
    lists = any("," in str(value) for values in knob.values.values() for value in values)
    return [parse_value(value.strip()) for value in text.split(";" if lists else ",") if value.strip()]


def parse_value(text: str) -> Value:
    """A number, true or false (on, off), or a word."""
    if text in ("true", "on", "false", "off"):
        return text in ("true", "on")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def values_of(knob: Knob, device: str, cores: int) -> list[Value]:
    """What is tried on a device, each once, in the file's order."""
    found = [
        max(cores // _CORES[value], 1) if isinstance(value, str) and value in _CORES else value
        for value in knob.values.get(device, [])
    ]
    return list({(type(value), value): value for value in found}.values())
