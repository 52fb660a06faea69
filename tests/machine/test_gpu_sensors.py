"""Reading a card's sensors, through a recorded NVML."""

from __future__ import annotations

import pytest
from tests.machine.nvml_double import NVMLError, RecordedNvml

from firsttoken.machine.gpu_sensors import GpuLimits, GpuReading, GpuSensors, open_sensors


def test_every_sensor_is_read_in_plain_units() -> None:
    sensors = GpuSensors(RecordedNvml(cards=2))
    assert sensors.count == 2
    assert sensors.read(0) == GpuReading(98.0, 71.0, 8_600_000_000, 412.35, 1100.0, 1980.0, 3201.0, 41.0)
    assert sensors.read(1).memory_used == 8_600_000_001


@pytest.mark.parametrize(
    ("reasons", "texts"),
    [
        (0x0, ()),
        (
            0x1 | 0x2 | 0x10 | 0x100,
            (),
        ),  # idle, clocks set by hand, several cards in step, display: nothing is held back
        (0x4, ("software power cap",)),
        (0x8 | 0x40, ("hardware slowdown", "hardware thermal slowdown")),
        (0x20 | 0x80, ("software thermal slowdown", "power brake")),
    ],
)
def test_only_reasons_that_cost_speed_are_told(reasons: int, texts: tuple[str, ...]) -> None:
    assert GpuSensors(RecordedNvml(reasons=reasons)).read(0).held_back == texts


def test_a_sensor_that_a_card_lacks_is_named_and_asked_once() -> None:
    nvml = RecordedNvml(absent={"energy", "temperature"})
    sensors = GpuSensors(nvml)
    first, second = sensors.read(0), sensors.read(0)
    assert (first.energy_j, first.temperature_c, first.power_w) == (None, None, 412.35)
    assert second == first
    assert sensors.missing(0) == ["energy", "temperature"]
    assert nvml.calls.count("energy") == 1


def test_without_a_driver_the_sensors_cannot_be_opened() -> None:
    with pytest.raises(NVMLError, match="Driver Not Loaded"):
        GpuSensors(RecordedNvml(driver=False))


def test_closing_gives_the_library_back() -> None:
    nvml = RecordedNvml()
    GpuSensors(nvml).close()
    assert nvml.open == 0


def test_this_very_machine_has_sensors_or_says_in_a_sentence_why_not() -> None:
    found = open_sensors()
    if isinstance(found, str):
        assert found.startswith("GPU: ")
        assert found.endswith(".")
    else:
        assert found.read(0).memory_used
        found.close()


def test_limits_are_told_where_the_card_tells_them() -> None:
    assert GpuSensors(RecordedNvml()).limits(0) == GpuLimits(1980, 700, 700)
    assert GpuSensors(RecordedNvml(absent={"SM clock", "power limit"})).limits(0) == GpuLimits()


def test_the_users_of_a_card_and_their_work_since_the_last_call_are_told_by_process() -> None:
    nvml, clock = RecordedNvml(), iter([10.0, 10.2, 10.4])
    sensors = GpuSensors(nvml, now=lambda: next(clock))
    nvml.users = {41: 30, 42: 5}
    assert sensors.users(0) == {41, 42}
    assert sensors.work(0) == {}  # since when?
    assert sensors.work(0) == {41: 30.0, 42: 5.0}
    nvml.users = {}
    assert sensors.work(0) == {}
    assert sensors.missing(0) == []  # that nobody works is an answer


def test_a_card_that_does_not_tell_who_works_is_not_asked_again() -> None:
    nvml = RecordedNvml(absent={"work of processes", "processes"})
    sensors = GpuSensors(nvml)
    assert sensors.users(0) == set()
    assert [sensors.work(0) for _ in range(3)] == [{}] * 3
    assert nvml.calls.count("work of processes") == 1
    assert sensors.missing(0) == ["work of processes"]
