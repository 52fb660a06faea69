"""What a user of `doctor apply` and `doctor restore` sees and is asked."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from firsttoken.doctor.tuning.apply import ApplyFailed
from firsttoken.doctor.tuning.session import apply_session, restore_session
from firsttoken.doctor.tuning.wishes import Wishes
from firsttoken.errors import ConfigError
from tests.doctor.good_machine import PROCESSOR
from tests.doctor.tuned_machine import cores, governor, journal, settings
from tests.machine.h200_double import H200
from tests.machine.nvml_double import NVMLError

COMMAND = "/opt/bin/firsttoken doctor apply"
SLOW = replace(PROCESSOR, governors={"ondemand": 2})


class Session:
    """A terminal whose user answers `yes`."""

    def __init__(self, nvml: H200 | None, root: Path, yes: bool = True, is_root: bool = True) -> None:
        self.settings, self.root, self.yes = settings(nvml, root, is_root), root, yes
        self.written = io.StringIO()
        self.console = Console(file=self.written, width=90)
        self.asked = 0

    def agree(self) -> bool:
        self.asked += 1
        return self.yes

    def apply(self, wishes: Wishes | None = None, only_show: bool = False) -> int:
        changes = self.settings.plan(wishes or Wishes(), SLOW)
        return apply_session(self.console, changes, journal(self.root), COMMAND, self.agree, only_show=only_show)

    def restore(self, forced: bool = False) -> int:
        return restore_session(self.console, journal(self.root), self.settings.find, COMMAND, forced=forced)

    @property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in self.written.getvalue().splitlines()]


def test_changes_are_shown_asked_for_made_and_put_back(tmp_path: Path) -> None:
    session = Session(H200(persistence=0), cores(tmp_path, "powersave", 1))
    assert session.apply() == 0
    assert session.asked == 1
    assert session.lines[:4] == [
        "To change",
        "setting now then",
        "card 0: persistence off on",
        "CPU governor, policy0 powersave performance",
    ]
    assert "ok card 0: persistence is on" in session.lines
    assert "`firsttoken doctor restore` puts all back" in session.lines[-1]
    assert session.restore() == 0
    assert session.lines[-2:] == [
        "ok CPU governor, policy0 is back at powersave",
        "ok card 0: persistence is back at off",
    ]
    assert session.restore() == 0
    assert session.lines[-1].startswith("Nothing to put back")


def test_without_consent_nothing_changes(tmp_path: Path) -> None:
    nvml = H200(persistence=0)
    session = Session(nvml, tmp_path, yes=False)
    assert session.apply() == 1
    assert nvml.changes == []
    assert not journal(tmp_path).path.exists()


def test_a_dry_run_shows_and_neither_asks_nor_needs_rights(tmp_path: Path) -> None:
    nvml = H200(persistence=0)
    session = Session(nvml, tmp_path, is_root=False)
    assert session.apply(only_show=True) == 0
    assert (session.lines[0], session.asked, nvml.changes) == ("Would change", 0, [])


def test_without_rights_the_command_to_run_is_named(tmp_path: Path) -> None:
    nvml = H200(persistence=0)
    session = Session(nvml, tmp_path, is_root=False)
    with pytest.raises(ConfigError, match=rf"only root may change a card's settings\. Run: sudo {COMMAND}"):
        session.apply()
    assert (session.asked, nvml.changes) == (0, [])

    assert Session(nvml, tmp_path).apply() == 0
    with pytest.raises(ConfigError, match=r"Nothing was put back: only root .*Run: sudo"):
        session.restore()


def test_a_lock_says_that_it_cannot_be_read(tmp_path: Path) -> None:
    session = Session(H200(), tmp_path)
    assert session.apply(Wishes(clocks="1200-1980")) == 0
    assert "card 0: clock lock driver's choice 1200-1980 MHz" in session.lines
    assert any("A clock lock cannot be read" in line for line in session.lines)


def test_a_good_machine_needs_nothing(tmp_path: Path) -> None:
    session = Session(H200(), tmp_path)
    assert session.apply() == 0
    assert session.lines == ["Nothing to change: all is as wished."]


def test_a_failure_says_what_was_put_back(tmp_path: Path) -> None:
    class Refusing(H200):
        def nvmlDeviceSetPowerManagementLimit(self, handle: int, milliwatts: int) -> None:
            raise NVMLError("Not Supported")

    session = Session(Refusing(persistence=0), tmp_path)
    with pytest.raises(ApplyFailed, match="card 0: power limit could not be changed: Not Supported"):
        session.apply(Wishes(power_limit="500"))
    assert "ok card 0: persistence is back at off" in session.lines


def test_a_journal_that_cannot_be_written_prevents_every_change(tmp_path: Path) -> None:
    nvml = H200(persistence=0)
    (tmp_path / "var").write_text("a file where the folder would be")
    with pytest.raises(ConfigError, match="Nothing was changed: the journal"):
        Session(nvml, tmp_path).apply()
    assert nvml.changes == []


def test_what_is_left_over_is_told_with_exit_code_1(tmp_path: Path) -> None:
    nvml = H200(persistence=0)
    session = Session(nvml, cores(tmp_path, "powersave", 1))
    session.apply()
    (tmp_path / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor").write_text("schedutil")
    assert session.restore() == 1
    assert governor(tmp_path) == "schedutil"
    assert "run this again" in session.lines[-1]
    assert session.restore(forced=True) == 0
    assert governor(tmp_path) == "powersave"
