"""Changing host settings and putting them back: on an H200's double, with crashes at every moment."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firsttoken.doctor.tuning.apply import ApplyFailed, apply
from firsttoken.doctor.tuning.card_knobs import FREE
from firsttoken.doctor.tuning.journal import Entry, Journal
from firsttoken.doctor.tuning.restore import restore
from firsttoken.doctor.tuning.wishes import Change, Wishes
from firsttoken.errors import ConfigError
from tests.doctor.good_machine import PROCESSOR
from tests.doctor.tuned_machine import Crashing, PowerCut, cores, governor, journal, settings
from tests.machine.h200_double import H200
from tests.machine.nvml_double import NVMLError

SLOW = replace(PROCESSOR, governors={"powersave": 2}, scaling_driver="acpi-cpufreq")
LOW: dict[str, Any] = {"persistence": 0, "limit": 400_000}


def nothing(change: Change) -> None:
    """Told of each change."""


def planned(nvml: H200 | None, root: Path, wishes: Wishes | None = None) -> list[Change]:
    return settings(nvml, root).plan(wishes or Wishes(), SLOW)


def words(changes: list[Change]) -> list[tuple[str, str, str]]:
    return [(one.knob.label, one.before, one.after) for one in changes]


def test_without_wishes_what_doctor_finds_slow_is_proposed_persistence_first(tmp_path: Path) -> None:
    assert words(planned(H200(**LOW), cores(tmp_path))) == [
        ("card 0: persistence", "off", "on"),
        ("card 0: power limit", "400", "700"),
        ("CPU governor, policy0", "powersave", "performance"),
        ("CPU governor, policy1", "powersave", "performance"),
    ]


def test_on_a_good_machine_nothing_is_proposed(tmp_path: Path) -> None:
    assert settings(H200(), cores(tmp_path, "performance")).plan(Wishes(), PROCESSOR) == []


def test_with_wishes_those_and_no_others_are_planned_and_persistence_for_what_needs_it(tmp_path: Path) -> None:
    nvml = H200(cards=2, persistence=0)
    found = planned(nvml, cores(tmp_path), Wishes(power_limit="300", clocks="1200-1500", cards=(1,)))
    assert words(found) == [
        ("card 1: persistence", "off", "on"),
        ("card 1: power limit", "700", "300"),
        ("card 1: clock lock", FREE, "1200-1500"),
    ]
    assert words(planned(nvml, tmp_path, Wishes(governor="schedutil"))) == [
        ("CPU governor, policy0", "powersave", "schedutil"),
        ("CPU governor, policy1", "powersave", "schedutil"),
    ]


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        (Wishes(power_limit="150"), "card 0: power limit: '150' is not a whole number of watts from 200 to 700"),
        (Wishes(power_limit="701"), "not a whole number of watts"),
        (Wishes(power_limit="a lot"), "not a whole number of watts"),
        (Wishes(power_limit="-300"), "not a whole number of watts"),
        (Wishes(clocks="2100"), r"card 0: clock lock: 2100-2100 MHz is not within the card's 345 to 1980 MHz\."),
        (Wishes(clocks="1500-1200"), "is not a clock or a span of clocks"),
        (Wishes(clocks="fast"), "is not a clock or a span of clocks"),
        (Wishes(governor="turbo"), "no governor 'turbo' here, but performance, powersave, schedutil"),
        (Wishes(persistence=True, cards=(3,)), "There is no card 3 here; the driver knows 1"),
    ],
)
def test_a_value_out_of_range_is_refused_in_a_sentence(tmp_path: Path, wishes: Wishes, sentence: str) -> None:
    nvml = H200()
    with pytest.raises(ConfigError, match=sentence):
        planned(nvml, cores(tmp_path), wishes)
    assert nvml.changes == []


def test_without_a_card_or_a_governor_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no NVIDIA card here"):
        planned(None, tmp_path, Wishes(power_limit="300"))
    with pytest.raises(ConfigError, match="does not let its CPU governor be chosen"):
        planned(None, tmp_path, Wishes(governor="performance"))


def test_a_setting_that_a_card_lacks_is_not_proposed_and_refused_when_asked_for(tmp_path: Path) -> None:
    silent = H200(absent={"nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementLimitConstraints"}, **LOW)
    assert [one.knob.kind for one in planned(silent, tmp_path)] == ["persistence"]
    with pytest.raises(ConfigError, match="power limit: the machine does not offer it"):
        planned(silent, tmp_path, Wishes(power_limit="300"))


def test_a_card_that_cannot_be_opened_is_told_and_keeps_no_other_from_being_put_back(tmp_path: Path) -> None:
    class Lost(H200):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            if index == 0:
                raise NVMLError("GPU is lost")
            return index

    with pytest.raises(ConfigError, match=r"Card 0 does not answer \(GPU is lost\)"):
        planned(Lost(), tmp_path)
    both = H200(cards=2)
    apply(planned(both, tmp_path, Wishes(power_limit="500")), journal(tmp_path), nothing)
    half = Lost(cards=2)
    half.state = both.state
    found = restore(journal(tmp_path), settings(half, tmp_path).find, forced=False)
    assert [(one.entry.label, one.well) for one in found] == [
        ("card 1: power limit", True),
        ("card 0: power limit", False),
    ]
    assert [one["limit"] for one in half.state] == [500_000, 700_000]


def test_a_driver_that_knows_no_persistence_still_takes_a_power_limit(tmp_path: Path) -> None:
    nvml = H200(absent={"nvmlDeviceGetPersistenceMode"})
    assert [one.knob.kind for one in planned(nvml, tmp_path, Wishes(power_limit="500"))] == ["power limit"]


def test_applied_changes_are_verified_and_restored_in_reverse(tmp_path: Path) -> None:
    nvml, root, kept = H200(**LOW), cores(tmp_path), journal(tmp_path)
    told: list[str] = []
    apply(
        planned(nvml, root, Wishes(power_limit="default", clocks="1980", governor="performance")),
        kept,
        lambda one: told.append(one.knob.kind),
    )
    assert told == ["persistence", "power limit", "clock lock", "CPU governor", "CPU governor"]
    assert (nvml.state[0]["persistence"], nvml.state[0]["limit"], nvml.state[0]["lock"]) == (1, 700_000, (1980, 1980))
    assert governor(root, 1) == "performance"

    found = restore(kept, settings(nvml, root).find, forced=False)
    assert all(one.well for one in found)
    assert [name for name, _, _ in nvml.changes[3:]] == ["lock", "limit", "persistence"]
    assert (nvml.state[0]["persistence"], nvml.state[0]["limit"], nvml.state[0]["lock"]) == (0, 400_000, None)
    assert (governor(root, 0), governor(root, 1)) == ("powersave", "powersave")
    assert not kept.path.exists()


def test_the_journal_is_on_the_disk_before_the_first_change(tmp_path: Path) -> None:
    nvml, kept = Crashing(at=0, **LOW), journal(tmp_path)
    with pytest.raises(PowerCut):
        apply(planned(nvml, tmp_path), kept, nothing)
    assert nvml.changes == []
    entries, _ = journal(tmp_path).read()
    assert [(one.kind, one.before, one.after) for one in entries] == [
        ("persistence", "off", "on"),
        ("power limit", "400", "700"),
    ]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(3))
def test_a_crash_at_any_change_is_put_back_by_the_next_restore(tmp_path: Path, at: int, after: bool) -> None:
    nvml = Crashing(at, after, **LOW)
    with pytest.raises(PowerCut):
        apply(planned(nvml, tmp_path, Wishes(power_limit="500", clocks="1200")), journal(tmp_path), nothing)
    assert len(nvml.changes) == at + after
    alive = H200(**LOW)
    alive.state = nvml.state  # the process died, the card did not
    found = restore(journal(tmp_path), settings(alive, tmp_path).find, forced=False)
    assert [one.well for one in found] == [True] * 3
    assert (alive.state[0]["persistence"], alive.state[0]["limit"], alive.state[0]["lock"]) == (0, 400_000, None)
    assert not journal(tmp_path).path.exists()


def test_a_crash_while_the_journal_is_written_leaves_the_older_one_whole(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    kept.write([Entry("persistence", "GPU-0000-0", "card 0: persistence", "off", "on")])
    kept.path.with_suffix(".new").write_bytes(b'{"version": 1, "bo')
    assert len(kept.read()[0]) == 1


def test_a_crash_in_a_restore_is_finished_by_the_next(tmp_path: Path) -> None:
    nvml = Crashing(at=3, **LOW)
    apply(planned(nvml, tmp_path, Wishes(power_limit="500", clocks="1200")), journal(tmp_path), nothing)
    with pytest.raises(PowerCut):
        restore(journal(tmp_path), settings(nvml, tmp_path).find, forced=False)
    alive = H200(**LOW)
    alive.state = nvml.state
    restore(journal(tmp_path), settings(alive, tmp_path).find, forced=False)
    assert (alive.state[0]["persistence"], alive.state[0]["limit"], alive.state[0]["lock"]) == (0, 400_000, None)


def test_a_change_that_the_card_refuses_undoes_those_before_it(tmp_path: Path) -> None:
    class Refusing(H200):
        def nvmlDeviceSetPowerManagementLimit(self, handle: int, milliwatts: int) -> None:
            raise NVMLError("Insufficient Permissions")

    nvml, kept = Refusing(**LOW), journal(tmp_path)
    with pytest.raises(ApplyFailed, match="limit could not be changed: Insufficient Permissions") as raised:
        apply(planned(nvml, cores(tmp_path)), kept, nothing)
    assert nvml.state[0]["persistence"] == 0
    assert governor(tmp_path) == "powersave"
    assert all(one.well for one in raised.value.restored)
    assert not kept.path.exists()


def test_a_change_that_does_not_hold_is_found_by_reading_it_back(tmp_path: Path) -> None:
    class Forgetful(H200):
        def nvmlDeviceSetPersistenceMode(self, handle: int, mode: int) -> None:
            self.changes.append(("persistence", handle, mode))

    kept = journal(tmp_path)
    with pytest.raises(ApplyFailed, match="it reads off afterwards"):
        apply(planned(Forgetful(**LOW), tmp_path), kept, nothing)
    assert not kept.path.exists()


def test_a_locked_clock_that_runs_higher_is_a_failure_and_a_lower_one_is_none(tmp_path: Path) -> None:
    class Unlocked(H200):
        def nvmlDeviceSetGpuLockedClocks(self, handle: int, low: int, high: int) -> None:
            self.changes.append(("lock", handle, (low, high)))

    with pytest.raises(ApplyFailed, match="the clock reads 1980 MHz afterwards"):
        apply(planned(Unlocked(), tmp_path, Wishes(clocks="1200")), journal(tmp_path), nothing)
    apply(planned(H200(sm_clock=345), tmp_path, Wishes(clocks="1980")), journal(tmp_path), nothing)


def test_what_could_not_be_undone_stays_in_the_journal(tmp_path: Path) -> None:
    class Stuck(H200):
        def _set(self, name: str, handle: int, value: Any) -> None:
            if self.changes:
                raise NVMLError("GPU is lost")
            super()._set(name, handle, value)

    nvml, kept = Stuck(**LOW), journal(tmp_path)
    with pytest.raises(ApplyFailed):
        apply(planned(nvml, tmp_path), kept, nothing)
    assert [one.kind for one in kept.read()[0]] == ["persistence"]


def test_a_second_apply_keeps_what_was_before_the_first(tmp_path: Path) -> None:
    nvml, kept = H200(), journal(tmp_path)
    apply(planned(nvml, tmp_path, Wishes(power_limit="500")), kept, nothing)
    apply(planned(nvml, tmp_path, Wishes(power_limit="300")), kept, nothing)
    assert nvml.state[0]["limit"] == 300_000
    restore(kept, settings(nvml, tmp_path).find, forced=False)
    assert nvml.state[0]["limit"] == 700_000


def test_after_a_restart_of_the_machine_old_values_are_no_longer_those_before(tmp_path: Path) -> None:
    apply(planned(H200(), tmp_path, Wishes(power_limit="500")), journal(tmp_path), nothing)
    again = H200(limit=650_000)
    apply(planned(again, tmp_path, Wishes(power_limit="300")), journal(tmp_path, "boot 2"), nothing)
    restore(journal(tmp_path, "boot 2"), settings(again, tmp_path).find, forced=False)
    assert again.state[0]["limit"] == 650_000


def test_after_a_restart_of_the_machine_settings_are_left_to_whoever_made_them(tmp_path: Path) -> None:
    apply(planned(H200(**LOW), tmp_path, Wishes(power_limit="500", clocks="1200")), journal(tmp_path), nothing)
    again = H200(lock=(900, 900))
    found = restore(journal(tmp_path, "boot 2"), settings(again, tmp_path).find, forced=False)
    assert {(one.well, one.text) for one in found} == {(True, "was given up by the machine's restart")}
    assert again.changes == []
    assert not journal(tmp_path).path.exists()


def test_a_refused_lock_leaves_nothing_to_put_back(tmp_path: Path) -> None:
    nvml = H200(absent={"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"}, **LOW)
    with pytest.raises(ApplyFailed, match="clock lock could not be changed: Not Supported"):
        apply(planned(nvml, tmp_path, Wishes(clocks="1200")), journal(tmp_path), nothing)
    assert nvml.state[0]["persistence"] == 0
    assert not journal(tmp_path).path.exists()


def test_what_somebody_else_changed_since_is_left_alone_unless_forced(tmp_path: Path) -> None:
    nvml, kept = H200(), journal(tmp_path)
    apply(planned(nvml, tmp_path, Wishes(power_limit="500")), kept, nothing)
    nvml.state[0]["limit"] = 600_000
    [found] = restore(kept, settings(nvml, tmp_path).find, forced=False)
    assert (found.well, nvml.state[0]["limit"]) == (False, 600_000)
    assert "is 600 W, which doctor did not set" in found.text
    [found] = restore(kept, settings(nvml, tmp_path).find, forced=True)
    assert (found.well, nvml.state[0]["limit"]) == (True, 700_000)
    assert not kept.path.exists()


def test_a_card_that_is_gone_waits_in_the_journal(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    apply(planned(H200(), tmp_path, Wishes(power_limit="500")), kept, nothing)
    [found] = restore(kept, settings(None, tmp_path).find, forced=False)
    assert (found.well, found.text) == (False, "is not there now")
    assert len(kept.read()[0]) == 1


def test_a_card_is_known_by_its_name_when_the_order_changes(tmp_path: Path) -> None:
    class Swapped(H200):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            return 1 - index

    nvml, kept = H200(cards=2), journal(tmp_path)
    apply(planned(nvml, tmp_path, Wishes(power_limit="500", cards=(0,))), kept, nothing)
    swapped = Swapped(cards=2)
    swapped.state = nvml.state
    restore(kept, settings(swapped, tmp_path).find, forced=False)
    assert [one["limit"] for one in swapped.state] == [700_000, 700_000]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{}", "is no journal"), ("nonsense", "is no journal"), ('{"version":2,"boot":"","entries":[]}', "newer")],
)
def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path, content: str, sentence: str) -> None:
    kept = Journal(tmp_path / "tuning.json", "boot 1")
    kept.path.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        kept.read()
    assert kept.path.read_text() == content


def test_two_at_once_are_kept_apart(tmp_path: Path) -> None:
    with journal(tmp_path).held(), pytest.raises(ConfigError, match="is at work"), journal(tmp_path).held():
        raise AssertionError("both hold it")
    with journal(tmp_path).held():
        pass


def test_no_card_is_ever_reset() -> None:
    source = Path(__file__).parents[2] / "src/firsttoken/doctor/tuning"
    called = {name for file in source.glob("*.py") for name in re.findall(r"nvmlDevice\w+", file.read_text())}
    assert {name for name in called if "Reset" in name} == {"nvmlDeviceResetGpuLockedClocks"}, "that unlocks clocks"


KILLED = """
import os, signal, sys
from pathlib import Path
from firsttoken.doctor.tuning.apply import apply
from firsttoken.doctor.tuning.wishes import Wishes
from tests.doctor.good_machine import PROCESSOR
from tests.doctor.tuned_machine import journal, settings

root = Path(sys.argv[1])
changes = settings(None, root).plan(Wishes(governor="performance"), PROCESSOR)
with journal(root).held():
    apply(changes, journal(root), lambda change: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_process_killed_after_its_first_change_is_undone_by_a_restore_in_another(tmp_path: Path) -> None:
    root = cores(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(root)], cwd=Path(__file__).parents[2], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (governor(root, 0), governor(root, 1)) == ("performance", "powersave")
    with journal(root).held():  # the lock died with its holder
        found = restore(journal(root), settings(None, root).find, forced=False)
    assert [one.text for one in found] == ["is powersave, as before", "is back at powersave"]
    assert (governor(root, 0), governor(root, 1)) == ("powersave", "powersave")
