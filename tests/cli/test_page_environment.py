"""The page's own environment, made by a fake Python: when it is made, what may enter it, and what can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cli.fake_serve import alive, until

from firsttoken.cli.page_environment import PageEnvironment, PageSetupFailed, page_environment

# `python -m venv` makes a folder whose python is a copy of this script; `python -m pip` says what a test wants of it.
PYTHON = """#!/bin/sh
echo "$*" >>{log}
env | grep ^PYTHON >>{log}
case "$*" in
    *venv*) mkdir -p {home}/bin && cp "$0" {home}/bin/python ;;
    *pip*) {pip} ;;
esac
"""


class Maker:
    """Makes an environment with a pip of our own."""

    def __init__(self, folder: Path, pip: str = "echo Collecting some-package; echo Done") -> None:
        self.log = folder / "log"
        self.python = folder / "fake-python"
        self.home = folder / "cache" / "page"
        self.set_pip(pip)

    def set_pip(self, pip: str) -> None:
        self.python.write_text(PYTHON.format(log=self.log, home=self.home, pip=pip))
        self.python.chmod(0o755)

    def environment(self, *requirements: str) -> PageEnvironment:
        return PageEnvironment(self.home, requirements or ("some-package~=1.0",), python=str(self.python))

    def failure(self) -> str:
        with pytest.raises(PageSetupFailed) as caught:
            self.environment().make(lambda step: None)
        assert not self.environment().is_ready
        return str(caught.value)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


def test_it_is_made_once_and_again_when_the_requirements_change(tmp_path: Path) -> None:
    maker, steps = Maker(tmp_path), list[str]()
    maker.environment().make(steps.append)
    assert maker.environment().is_ready
    maker.environment().make(steps.append)
    assert len(maker.calls) == 2
    assert maker.calls[1].endswith("--retries 2 some-package~=1.0")
    assert steps == ["environment", "some-package"]
    assert not maker.environment("some-package~=2.0").is_ready
    maker.environment("some-package~=2.0").make(steps.append)
    assert len(maker.calls) == 4


def test_one_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    maker = Maker(tmp_path, "exit 1")
    assert "could not be installed" in maker.failure()
    maker.set_pip("true")
    maker.environment().make(lambda step: None)
    assert maker.environment().is_ready


@pytest.mark.parametrize(
    ("pip", "sentence"),
    [
        (
            "echo 'WARNING: Retrying after NewConnectionError: Name or service not known'; exit 1",
            "The package index does not answer, and the chat page needs Chainlit from it; check the network",
        ),
        ("echo 'OSError: [Errno 28] No space left on device'; exit 1", "The disk is full; make room"),
        ("echo 'ERROR: No matching distribution found for x'; exit 1", "No matching distribution found for x"),
        ("echo 'The virtual environment was not created: ensurepip is not available'; exit 1", "python3-venv"),
    ],
)
def test_what_pip_cannot_do_is_one_sentence(tmp_path: Path, pip: str, sentence: str) -> None:
    said = Maker(tmp_path, pip).failure()
    assert sentence in said
    assert "\n" not in said


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in its place")
    assert "set FIRSTTOKEN_CACHE to a folder that can" in Maker(tmp_path).failure()


def test_of_two_that_begin_together_the_second_uses_what_the_first_made(tmp_path: Path) -> None:
    maker = Maker(tmp_path, "sleep 0.5")
    steps: list[str] = []
    second = threading.Thread(target=lambda: maker.environment().make(steps.append))

    def begin(step: str) -> None:
        if not second.is_alive():
            second.start()

    maker.environment().make(begin)
    second.join(10)
    assert steps == ["waiting for another set-up"]
    assert len(maker.calls) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_set_up_and_what_it_started(tmp_path: Path, number: signal.Signals) -> None:
    maker = Maker(tmp_path, f"echo $$ >{tmp_path}/pid; echo Collecting slowly; exec sleep 60")
    program = (
        "import sys; from pathlib import Path; from firsttoken.cli.page_environment import PageEnvironment, set_up\n"
        "set_up(PageEnvironment(Path(sys.argv[1]), ['x'], python=sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(maker.home), str(maker.python)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as setting_up:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        setting_up.send_signal(number)
        assert setting_up.wait(10) != 0
    assert not alive(int((tmp_path / "pid").read_text()))
    assert not maker.environment("x").is_ready


def test_nothing_of_ours_comes_into_it_but_this_firsttoken(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    maker.environment().make(lambda step: None)
    given = {"PYTHONPATH": "/somewhere", "PYTHONHOME": "/else", "KEPT": "yes"}
    variables = maker.environment().variables(given)
    assert variables["KEPT"] == "yes"
    assert "PYTHONHOME" not in variables
    [lent] = Path(variables["PYTHONPATH"]).iterdir()
    assert lent.name == "firsttoken"
    assert maker.environment().variables(given) == variables
    program = "import sys, firsttoken.chat.chat_errors as found; print(found.__file__)"
    bare = [sys.executable, "-S", "-P", "-c", program]  # -S: no installed packages
    done = subprocess.run(bare, env=variables, capture_output=True, text=True, timeout=20)
    assert done.stdout.startswith(str(lent)), done.stderr


def test_the_page_needs_no_more_than_is_lent_and_required(tmp_path: Path) -> None:
    environment = page_environment({"FIRSTTOKEN_CACHE": str(tmp_path)})
    assert environment.folder.parent == tmp_path
    assert not environment.is_ready
    assert os.environ.get("FIRSTTOKEN_CACHE") != str(tmp_path)
