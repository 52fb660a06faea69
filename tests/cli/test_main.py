"""The command as a user runs it: a process, its output and its exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

import firsttoken
from firsttoken.cli.main import COMMANDS

HEAVY = ("torch", "numpy", "pydantic", "fastapi", "rich", "httpx", "transformers", "jinja2", "tokenizers")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "firsttoken", *args], capture_output=True, text=True, timeout=60)


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from firsttoken.cli.main import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0, end.code
print("HEAVY", [name for name in {HEAVY!r} if name in sys.modules])
"""
    result = run_code(code)
    assert result.stdout.splitlines()[-1] == "HEAVY []", result.stdout + result.stderr
    for name in COMMANDS:
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help_imports_no_torch_and_says_what_the_list_says(name: str) -> None:
    code = f"""
import sys
from firsttoken.cli.main import main
try:
    main([{name!r}, "--help"])
except SystemExit as end:
    assert end.code == 0, end.code
print("HEAVY", [name for name in ("torch", "numpy", "pydantic", "fastapi") if name in sys.modules])
"""
    result = run_code(code)
    assert result.stdout.startswith(f"Usage: firsttoken {name}"), result.stderr
    assert result.stdout.splitlines()[-1] == "HEAVY []"


def test_the_version_is_printed_without_importing_torch() -> None:
    result = run("version")
    assert result.returncode == 0
    assert f"firsttoken {firsttoken.__version__}" in result.stdout
    assert "torch " in result.stdout
    assert run("--version").stdout == f"firsttoken {firsttoken.__version__}\n"


def test_a_mistyped_command_or_flag_gets_a_suggestion_and_code_2() -> None:
    command, flag = run("srve"), run("version", "--hlep")
    assert (command.returncode, flag.returncode) == (2, 2)
    assert "Did you mean 'serve'?" in command.stderr
    assert "--help" in flag.stderr.splitlines()[-1]


def test_a_command_that_resembles_nothing_gets_the_list() -> None:
    result = run("xyzzy")
    assert result.returncode == 2
    assert "The commands are serve, chat" in result.stderr


def raising(statement: str) -> subprocess.CompletedProcess[str]:
    """Runs the real `main` with one more command, whose body is `statement`."""
    return run_code(f"""
import sys, types, click
from firsttoken.cli import main as entry
from firsttoken.errors import ConfigError, ModelError
module = types.ModuleType("extra")
@click.command()
def extra():
    {statement}
module.extra = extra
sys.modules["extra"] = module
entry.COMMANDS["extra"] = ("extra", "extra", "")
entry.main(["extra"])
""")


@pytest.mark.parametrize(("error", "status"), [("ConfigError", 2), ("ModelError", 1)])
def test_a_users_mistake_is_one_sentence_on_stderr(error: str, status: int) -> None:
    result = raising(f"raise {error}('The folder x holds no model.')")
    assert result.returncode == status
    assert result.stderr == "Error: The folder x holds no model.\n"
    assert result.stdout == ""


def test_ctrl_c_ends_with_130_and_no_traceback() -> None:
    result = raising("raise KeyboardInterrupt")
    assert result.returncode == 130
    assert result.stderr == "\nStopped; the same command goes on where it was.\n"


def test_a_reader_that_is_gone_is_no_error() -> None:
    result = raising("raise BrokenPipeError")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("OSError(28, 'No space left on device')", "The disk is full; make room and run it again."),
        ("OSError(28, 'No space left', '/data/run.json')", "The disk is full at /data/run.json; make room"),
        ("PermissionError(13, 'Permission denied', '/data/run.json')", "/data/run.json cannot be opened"),
    ],
)
def test_a_disk_that_takes_nothing_is_told_in_one_sentence(error: str, words: str) -> None:
    result = raising(f"raise {error}")
    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: {words}")
    assert result.stderr.count("\n") == 1


def test_an_error_of_the_system_that_no_user_can_mend_keeps_its_traceback() -> None:
    result = raising("raise OSError(5, 'Input/output error')")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_our_own_bug_keeps_its_traceback() -> None:
    result = raising("assert False, 'a bug'")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
