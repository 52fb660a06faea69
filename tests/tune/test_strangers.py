"""Telling a server's processes on a card from others'."""

from __future__ import annotations

from tests.machine.nvml_double import RecordedNvml

from firsttoken.machine.gpu_sensors import GpuSensors
from firsttoken.tune.strangers import Strangers


def test_who_was_there_before_the_server_or_stays_after_it_is_a_stranger() -> None:
    nvml = RecordedNvml()
    nvml.users = {7: 0}
    strangers = Strangers(lambda: GpuSensors(nvml), lambda seconds: nvml.users.pop(41))  # ended, and still listed
    strangers.look()
    nvml.users = {7: 0, 41: 90, 8: 5}  # the server, and a newcomer
    assert strangers.found() == {"gpu0:7", "gpu0:8"}
    assert nvml.open == 0


def test_without_a_card_nobody_is_one() -> None:
    strangers = Strangers(lambda: "GPU: none that the NVIDIA driver knows.")
    strangers.look()
    assert strangers.found() == frozenset()
