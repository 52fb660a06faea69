"""From text to findings: reads what was given, takes each command apart, and asks every check."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from firsttoken.doctor.lint import clients, flag_checks, launch_checks, memory_checks, ports, rules
from firsttoken.doctor.lint.case import Case
from firsttoken.doctor.lint.finding import LEVELS, Finding, apply
from firsttoken.doctor.lint.launch import take_apart
from firsttoken.doctor.lint.shell import ShellCommand, commands, join
from firsttoken.doctor.lint.table import FlagTable, load_table
from firsttoken.doctor.lint.unwrap import Inner, text_of, unwrap

_PYTHON = re.compile(r"(python|pypy)[\d.]*$")
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
}
_VERSION = re.compile(r"v?(\d+\.\d+(\.\d+)?)")


@dataclass(slots=True)
class Checked:
    """One command, what is wrong with it, and how it would be right."""

    text: str  # as it was read, one line
    line: int
    program: str  # "" where it is none that lint knows
    findings: list[Finding] = field(default_factory=list)
    corrected: str | None = None  # None: nothing to correct, or no correction known; "" leaves the command out
    port: int | None = None  # that the server will listen on
    background: bool = False
    names: tuple[str, ...] = ()  # that the API calls the model; () where it is not known
    needs_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Linter:
    """Checks commands. `firsttoken` knows this program's own commands."""

    firsttoken: Callable[[list[str]], tuple[FlagTable | None, int, str]]  # flags, where they begin, else what is wrong
    config_of: memory_checks.FindConfig = lambda name: None  # shapes of a model that is known
    memory: int | None = None  # bytes of the card that the commands are for
    card: str = ""  # its name
    versions: dict[str, str] = field(default_factory=dict)  # {vllm: 0.10.2}; the newest known otherwise

    def check_text(self, text: str) -> list[Checked]:
        """Every command of a script, a history or a pasted line."""
        found = [checked for command in commands(text) for checked in self.check(command)]
        ports.check_ports(found)
        clients.check_requests(found)
        return found

    def check_words(self, words: list[str]) -> list[Checked]:
        """One command that a shell has split already."""
        if len(words) == 1:
            return self.check_text(words[0])
        own: dict[str, str] = {}
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            name, _, own[name] = words[0].partition("=")
            words = words[1:]
        return self.check(ShellCommand(words, own, {}, 0, join(words)))

    def check(self, command: ShellCommand, passes: int = 4) -> list[Checked]:
        """One simple command; several where it is a shell that runs others. Its correction is checked and corrected
        again, `passes` times at most."""
        inner = unwrap(command.words)
        if inner.nested is not None:
            return self._nested(command, inner)
        case = self._case(command, inner)
        text = text_of(command.words, command.variables)
        found = [*launch_checks.own_command(case), *rules.findings(case)]
        port: int | None = None
        names: tuple[str, ...] = ()
        needs_key = False
        if case.launch is not None:
            found += flag_checks.findings(case)
            found += launch_checks.findings(case)
            found += memory_checks.findings(case, self.config_of, self.memory, self.card)
            port = ports.port_of(case)
            names, needs_key = clients.names_of(case), clients.needs_key(case)
        found.sort(key=lambda finding: -LEVELS.index(finding.level))
        known = case.launch is not None or bool(found) or case.program in _CHECKED
        checked = Checked(text, command.line, case.program if known else "", found, port=port)
        checked.background, checked.names, checked.needs_key = command.background, names, needs_key
        checked.corrected = self._corrected(command, inner, found, passes)
        return [checked, *self._launches(command, case)]

    def _launches(self, command: ShellCommand, case: Case) -> Iterator[Checked]:
        """The servers that a benchmark starts by itself; their ports are its own affair."""
        if case.program != "firsttoken" or case.launch is None:
            return
        for option in case.launch.options:
            if option.name in _STARTS and option.value:
                for part in commands(option.value):
                    for checked in self.check(replace(part, line=command.line)):
                        checked.port = None
                        yield checked

    def _nested(self, command: ShellCommand, inner: Inner) -> list[Checked]:
        """`bash -c '…'`: its commands, each corrected as the whole line."""
        assert inner.nested is not None
        parts = [
            replace(
                part,
                line=command.line,
                exported=command.exported | part.exported | inner.variables,
                background=part.background or command.background,
            )
            for part in commands(inner.nested)
        ]
        return [checked for part in parts for checked in self.check(part)]

    def _case(self, command: ShellCommand, inner: Inner) -> Case:
        words = inner.words
        program, start = _program(words)
        case = Case(
            program=program,
            words=words,
            variables=command.variables | inner.variables,
            exported=command.exported,
            container=inner.container,
            line=command.line,
            raw=command.text,
        )
        if program == "firsttoken":
            table, after, case.trouble = self.firsttoken(words[start - 1 :])
            start += after - 1
            case.trouble_at = start
        else:
            table = self._table(program, start, inner)
        if table is not None:
            case.launch = take_apart(words, start, table)
        return case

    def _table(self, program: str, start: int, inner: Inner) -> FlagTable | None:
        if program not in ("vllm", "sglang") or not start or "--omni" in inner.words:
            return None  # vLLM-Omni is a package of its own, with flags of its own
        version = self.versions.get(program)
        if version is None and inner.container and (tag := _VERSION.match(inner.container.tag)):
            version = tag[1]
        return load_table(program, version)

    def _corrected(self, command: ShellCommand, inner: Inner, found: Iterable[Finding], passes: int) -> str | None:
        """The command without its faults; each pass mends what the pass before has shown."""
        wrong = [finding for finding in found if finding.level != "note"]
        if not wrong or not all(finding.whole for finding in wrong):
            return None
        dropped = tuple(name for finding in wrong for name in finding.variables)
        words = apply(inner.words, [edit for finding in wrong for edit in finding.edits])
        for finding in wrong:
            if finding.replacement == "":
                return ""
            if finding.replacement is not None:
                words = shlex.split(finding.replacement)
                break
        whole = inner.wrap(words, dropped, tuple(word for finding in wrong for word in finding.outer))
        variables = {name: value for name, value in command.variables.items() if name not in dropped}
        if not whole and not variables:
            return ""
        text = text_of(whole, variables)
        if text == text_of(command.words, command.variables):
            return None
        parts = commands(text)
        again = self.check(parts[0], passes - 1)[0] if passes and parts else None
        if again and all(finding.level == "note" for finding in again.findings):
            return text
        return again.corrected if again else None  # what is not wholly right is not called so


_STARTS = ("--launch", "--a", "--b")
_CHECKED = ("nvidia-smi", "cpupower", "chainlit", "curl", "hf", "huggingface-cli")


def _program(words: list[str]) -> tuple[str, int]:
    """What a command runs, and where its flags begin; 0 where that is not known."""
    if not words:
        return "", 0
    name = words[0].rsplit("/", 1)[-1]
    if _PYTHON.match(name):
        for position, word in enumerate(words[1:], 1):
            if word == "-m" and position + 1 < len(words):
                module = words[position + 1]
                if module == "firsttoken":
                    return "firsttoken", position + 2
                known = _MODULES.get(module)
                return known or module.split(".")[0], position + 2 if known else 0
            if not word.startswith("-"):
                break
        return name, 0
    second = words[1] if len(words) > 1 else ""
    if name == "vllm":
        return "vllm", 2 if second == "serve" else 0
    if name == "sglang":
        return "sglang", 2 if second == "serve" else 0
    if name == "firsttoken":
        return "firsttoken", 1
    return name, 0
