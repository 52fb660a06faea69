"""What the repository says of itself is true: its reference is current and what its pages name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from firsttoken.version import __version__

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*.md")]
)


def test_the_command_line_reference_is_current() -> None:
    script = ROOT / "scripts" / "cli_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_of_a_page_leads_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    missing = [link for link in links if "://" not in link and not (folder / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_every_flag_that_a_readme_names_is_a_real_one(page: str) -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", (ROOT / "docs" / "reference" / "cli.md").read_text()))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", (ROOT / page).read_text()))
    assert named - known == set()


def test_both_readmes_show_the_same_code_and_commands() -> None:
    def code(page: str) -> list[str]:
        blocks = re.findall(r"```\w*\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
        return [re.sub(r" +#.*", "", block) for block in blocks]

    assert code("README.md") == code("README.zh-CN.md")


def test_make_targets_named_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"`?\bmake ([a-z]+)\b(?=[`\s])", _code_of(page))) <= targets, page


def _code_of(page: str) -> str:
    """The page's code blocks and inline code."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", (ROOT / page).read_text(), flags=re.DOTALL))


def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", text, flags=re.MULTILINE)
    assert "## [Unreleased]" in text
    assert not released or released[0] <= __version__
