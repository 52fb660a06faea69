"""The whole of a machine: what is told, in which order, with which exit code, and that readings can be replayed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from firsttoken.doctor.examine import examine
from firsttoken.doctor.finding import Finding, exit_code, worst
from firsttoken.doctor.readings import Readings
from firsttoken.doctor.report import as_document, print_findings
from firsttoken.doctor.take import take_readings
from tests.doctor.good_machine import DRIVER, SOFTWARE, SYSTEM, card, machine
from tests.machine.h200_double import H200
from tests.machine.short_load import ShortLoad


def screen(findings: list[Finding], width: int = 100, explain: bool = False) -> str:
    written = io.StringIO()
    print_findings(Console(file=written, width=width), findings, explain=explain)
    return written.getvalue()


def test_a_good_machine_is_well_and_gets_no_advice() -> None:
    found = examine(machine())
    assert (worst(found), exit_code(found)) == ("ok", 0)
    text = screen(found)
    assert "Fix:" not in text
    assert f"0 bad, 0 to look at, {len(found)} ok, 0 not readable here" in text


@pytest.mark.parametrize(
    ("fault", "verdict", "code"),
    [
        ({"cards": (card(persistence=0),)}, "warn", 3),
        ({"cards": (card(persistence=0, mode=2),)}, "bad", 4),
        ({"driver": replace(DRIVER, version=None, modules=("nouveau",), trouble="x"), "cards": ()}, "bad", 4),
    ],
)
def test_the_exit_code_is_that_of_the_worst(fault: dict[str, object], verdict: str, code: int) -> None:
    found = examine(machine(**fault))
    assert (worst(found), exit_code(found)) == (verdict, code)


def test_without_a_gpu_that_is_said_and_the_host_is_judged() -> None:
    driver = replace(DRIVER, version=None, cuda=None, modules=(), on_bus=(), trouble="NVML Shared Library Not Found")
    bare = machine(driver=driver, cards=(), system=replace(SYSTEM, device_files=()))
    found = examine(bare)
    [card_finding] = [one for one in found if one.check == "NVIDIA card"]
    assert card_finding.verdict == "warn"
    assert "so the CPU runs the model" in card_finding.reading
    assert {"cores", "memory", "model disk", "CPU kernels"} <= {one.check for one in found}
    assert exit_code(found) == 3


def test_a_machine_that_tells_nothing_is_not_readable_and_exits_well() -> None:
    unread = Finding("host", "swap", "unread", "the system does not tell", "…")
    assert (worst([unread]), exit_code([unread])) == ("unread", 0)
    assert worst([]) == "unread"


def test_two_cards_stand_under_their_own_headings() -> None:
    second = card(persistence=0)
    two = (card(), replace(second, state=replace(second.state, index=1)))
    text = screen(examine(machine(cards=two)))
    assert text.index("Card 0: NVIDIA H200") < text.index("Card 1: NVIDIA H200") < text.index("Software")
    assert "nvidia-smi -i 1 -pm 1" in " ".join(text.split())


def test_the_readings_in_json_can_be_replayed() -> None:
    readings = machine(cards=(card("at_power_limit", link=(5, 8)),), environment={"TRITON_INTERPRET": "1"})
    document = as_document(examine(readings), readings)
    loaded = json.loads(document)
    assert loaded["verdict"] == "bad"
    assert {"area", "check", "verdict", "reading", "why", "fix"} == set(loaded["findings"][0])
    again = msgspec.json.decode(json.dumps(loaded["readings"]), type=Readings)
    assert again == readings
    assert examine(again) == examine(readings)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_finding_keeps_within_the_terminal_with_why_and_fix_below_its_reading(width: int) -> None:
    lines = screen(examine(machine(cards=(card(persistence=0),))), width).splitlines()
    assert all(len(line) <= width for line in lines)
    [at] = [n for n, line in enumerate(lines) if " persistence " in line and "warn" in line]
    column = lines[at].index("off")
    rest = lines[at + 1 : at + 2 + next(n for n, line in enumerate(lines[at + 1 :]) if "-pm 1" in line)]
    assert all(line[:column].strip() == "" for line in rest)


def test_reasons_of_what_is_well_are_told_on_request() -> None:
    found = examine(machine())
    assert found[0].why not in " ".join(screen(found, 400).split())
    assert found[0].why in " ".join(screen(found, 400, explain=True).split())


def taken(nvml: H200 | None, tmp_path: Path, **options: object) -> Readings:
    chosen = {"load_of": lambda index: ShortLoad(6)} | options
    return take_readings(nvml, None, SOFTWARE, tmp_path, {"HF_TOKEN": "x"}, **chosen)  # type: ignore[arg-type]


def test_an_unused_card_is_put_to_work_and_read(tmp_path: Path) -> None:
    [one] = taken(H200(), tmp_path).cards
    assert one.under_load is not None
    assert one.under_load.sm_clock_mhz == 1980.0


def test_a_card_that_others_use_is_put_to_work_only_when_asked(tmp_path: Path) -> None:
    used = H200(processes=[(1, None)])
    load = ShortLoad(6)
    [one] = taken(used, tmp_path, load_of=lambda index: load).cards
    assert (load.left, one.under_load is not None and one.under_load.by_others) == (6, True)
    [one] = taken(used, tmp_path, load_of=lambda index: load, even_if_used=True).cards
    assert (load.left, one.under_load is not None and one.under_load.by_others) == (-1, False)
    [one] = taken(H200(), tmp_path, load_of=None).cards
    assert one.why_no_load == "not put to work, as --no-load says"


def test_a_card_is_read_while_others_keep_it_at_work_and_not_while_they_leave_it_idle(tmp_path: Path) -> None:
    used: dict[str, Any] = {"processes": [(545, 136_107_261_952)], "used": 136_761_442_304}
    findings = {one.check: one for one in examine(taken(H200(**used), tmp_path))}
    assert findings["SM clock"].reading == "1980 MHz under another program's load, 100% of 1980 MHz"
    assert findings["PCIe link"].reading == "generation 5, 16 lanes under another program's load"
    [one] = taken(H200("at_rest", **used), tmp_path).cards
    assert one.under_load is None
    assert one.why_no_load == "not put to work beside others, which leave it idle now (--load does it)"


def test_an_h200_as_it_was_recorded_is_well_and_beside_a_server_only_the_server_is_seen() -> None:
    recorded = json.loads(Path(__file__).with_name("h200_readings.json").read_text())
    idle = examine(msgspec.convert(recorded["idle"], Readings, strict=False))
    assert (worst(idle), exit_code(idle)) == ("ok", 0)
    assert {one.check for one in idle if one.verdict == "unread"} == {"CPU governor", "model disk"}
    by_check = {one.check: one.reading for one in idle}
    assert by_check["SM clock"] == "1665 MHz under load, 84% of 1980 MHz"
    assert by_check["held back"].endswith("694 W drawn at most of its own 700, as dense products do")
    busy = examine(msgspec.convert(recorded["busy"], Readings, strict=False))
    assert {one.check for one in busy if one.verdict == "warn"} == {"other processes", "memory", "port 8000"}
    assert all("If it is the server that you" in one.fix for one in busy if one.verdict == "warn")
    assert worst(busy) == "warn"


def test_a_load_that_fails_is_a_reading_not_made(tmp_path: Path) -> None:
    [one] = taken(H200(), tmp_path, load_of=lambda index: ShortLoad(why_not="CUDA out of memory")).cards
    assert one.why_no_load == "could not be put to work: CUDA out of memory"


def test_a_secret_in_the_environment_is_not_read(tmp_path: Path) -> None:
    assert taken(None, tmp_path).environment == {}
