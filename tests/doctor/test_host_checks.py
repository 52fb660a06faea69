"""Faults of a host, each planted alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.doctor.checks.disk import check_disk
from firsttoken.doctor.checks.environment import check_environment, known_variables
from firsttoken.doctor.checks.memory import check_memory
from firsttoken.doctor.checks.processor import check_processor
from firsttoken.doctor.checks.software import check_software
from firsttoken.doctor.checks.system import check_system
from firsttoken.doctor.finding import Finding
from tests.doctor.good_machine import DISK, GIB, MEMORY, PROCESSOR, SOFTWARE, SYSTEM, card

CARD = card().state
TWO_NODES = {0: tuple(range(8)), 1: tuple(range(8, 16))}


def only(findings: list[Finding]) -> Finding:
    """The one that is not well."""
    [found] = [one for one in findings if one.verdict != "ok"]
    return found


def test_a_good_host_has_no_fault() -> None:
    found = [
        *check_processor(PROCESSOR, True), *check_memory(MEMORY, [CARD], PROCESSOR.allowed), *check_disk(DISK),
        *check_system(SYSTEM), *check_software(SOFTWARE, (CARD,)), *check_environment({}, 16, True),
    ]  # fmt: skip
    assert {one.verdict for one in found} == {"ok"}
    assert all(one.reading and one.why for one in found)


@pytest.mark.parametrize(
    ("change", "check", "verdict", "reading", "fix"),
    [
        ({"cores": 2}, "cores", "warn", "2 cores usable of 16", "--cpus"),
        ({"cores": 2, "logical": 2}, "cores", "warn", "2 cores usable of 2", "4 cores or more"),
        ({"throttled_share": 0.05}, "CPU quota", "warn", "5.0%", "--cpuset-cpus"),
        ({"throttled_share": 0.4}, "CPU quota", "bad", "40.0%", "quota"),
        ({"governors": {"powersave": 16}, "scaling_driver": "acpi-cpufreq"}, "CPU governor", "bad", "lowest", "apply"),
        ({"governors": {"ondemand": 12, "performance": 4}}, "CPU governor", "warn", "ondemand (12)", "cpupower"),
        (
            {"governors": {"powersave": 16}, "preferences": {"balance_power": 16}},
            "CPU governor", "warn", "energy preference balance_power", "cpupower",
        ),
        ({"governors": {}}, "CPU governor", "unread", "virtual machines", ""),
        ({"waiting_percent": 60.0}, "CPU pressure", "warn", "60 %", "top"),
        ({"waiting_percent": None}, "CPU pressure", "unread", "not tell", ""),
        ({"instructions": ()}, "instructions", "unread", "not tell", ""),
    ],
)  # fmt: skip
def test_a_fault_of_the_processor(change: dict[str, Any], check: str, verdict: str, reading: str, fix: str) -> None:
    found = only(check_processor(replace(PROCESSOR, **change), True))
    assert (found.check, found.verdict) == (check, verdict)
    assert reading in found.reading
    assert fix in found.fix


def test_a_processor_that_rules_itself_may_stay_in_its_default_mode() -> None:
    own = replace(PROCESSOR, governors={"powersave": 16}, preferences={"balance_performance": 16})
    assert {one.verdict for one in check_processor(own, True)} == {"ok"}


def test_without_a_card_narrow_instructions_matter() -> None:
    narrow = replace(PROCESSOR, instructions=("fma",))
    assert {one.verdict for one in check_processor(narrow, True)} == {"ok"}
    assert "AVX2" in only(check_processor(narrow, False)).reading


@pytest.mark.parametrize(
    ("change", "check", "verdict", "reading", "fix"),
    [
        ({"available": 3 * GIB}, "memory", "warn", "3.0 GiB free of 125.0 GiB", "4.0 GiB"),
        ({"available": GIB}, "memory", "bad", "1.0 GiB free", "4.0 GiB"),
        ({"swap_total": 64 * GIB, "swap_used": 20 * GIB}, "swap", "warn", "20.0 GiB used of 64.0 GiB", "swapoff"),
        ({"swap_total": GIB, "swap_used": 0, "waiting_percent": 7.0}, "swap", "bad", "waited for memory", "vmstat"),
        ({"swap_total": None, "swap_used": None}, "swap", "unread", "not tell", ""),
        ({"killed": 1}, "killed for memory", "warn", "1 process was killed", "limit"),
        ({"killed": None}, "killed for memory", "unread", "not tell", ""),
        ({"huge_pages": None}, "huge pages", "unread", "not tell", ""),
        ({"nodes": TWO_NODES}, "NUMA", "warn", "2 nodes, this process may run on nodes 0, 1", "--cpunodebind=0"),
    ],
)
def test_a_fault_of_the_memory(change: dict[str, Any], check: str, verdict: str, reading: str, fix: str) -> None:
    found = only(check_memory(replace(MEMORY, **change), [CARD], PROCESSOR.allowed))
    assert (found.check, found.verdict) == (check, verdict)
    assert reading in found.reading
    assert fix in found.fix


def test_a_process_kept_away_from_its_cards_node_is_bad_and_one_beside_it_is_well() -> None:
    memory, far = replace(MEMORY, nodes=TWO_NODES), replace(CARD, numa_node=1)
    found = only(check_memory(memory, [far], range(8)))
    assert (found.verdict, "card 0 is on node 1" in found.reading) == ("bad", True)
    assert "--cpunodebind=1 --membind=1" in found.fix
    assert {one.verdict for one in check_memory(memory, [far], range(8, 16))} == {"ok"}


def test_huge_pages_matter_where_the_weights_are_in_the_hosts_memory() -> None:
    never = replace(MEMORY, huge_pages="never")
    assert {one.verdict for one in check_memory(never, [CARD], PROCESSOR.allowed)} == {"ok"}
    assert only(check_memory(never, [], PROCESSOR.allowed)).check == "huge pages"


@pytest.mark.parametrize(
    ("change", "check", "verdict", "reading"),
    [
        ({"rate": 0.5e9}, "model disk", "warn", "0.50 GB/s from /models (ext4): 16 s for 8 GB"),
        ({"rate": 0.1e9}, "model disk", "bad", "80 s"),
        ({"rate": None, "why_unmeasured": "there is no weight file to read"}, "model disk", "unread", "no weight file"),
        ({"rate": None, "filesystem": "nfs4", "why_unmeasured": "…"}, "model disk", "warn", "over a network"),
        ({"rate": None, "filesystem": "fuse.sshfs", "why_unmeasured": "…"}, "model disk", "warn", "over a network"),
        ({"free": 4 * GIB}, "disk room", "warn", "4.0 GiB free"),
    ],
)
def test_a_fault_of_the_disk(change: dict[str, Any], check: str, verdict: str, reading: str) -> None:
    found = only(check_disk(replace(DISK, **change)))
    assert (found.check, found.verdict) == (check, verdict)
    assert reading in found.reading


def test_a_folder_in_memory_is_as_fast_as_can_be() -> None:
    found = check_disk(replace(DISK, filesystem="tmpfs", rate=None))
    assert {one.verdict for one in found} == {"ok"}


def test_taken_ports_are_told_with_their_owner_and_another_port() -> None:
    found = check_system(replace(SYSTEM, ports_taken={8000: "python3, process 12", 8080: None}))
    first, second = (one for one in found if one.verdict == "warn")
    assert (first.check, first.reading) == ("port 8000", "taken by python3, process 12")
    assert "--port 8001" in first.fix
    assert (second.check, second.reading) == ("port 8080", "taken")


def test_a_low_hard_limit_on_files_is_told_and_a_low_soft_one_is_raised_by_the_server() -> None:
    assert {one.verdict for one in check_system(replace(SYSTEM, files_soft=256))} == {"ok"}
    found = only(check_system(replace(SYSTEM, files_soft=256, files_hard=1024)))
    assert (found.check, found.reading) == ("open files", "256, at most 1,024")
    assert {one.verdict for one in check_system(replace(SYSTEM, files_soft=None, files_hard=None))} == {"ok"}


def test_a_container_is_named() -> None:
    [found] = [one for one in check_system(replace(SYSTEM, container="docker")) if one.check == "container"]
    assert found.reading == "container (docker), virtual machine, kernel 6.18.44"


@pytest.mark.parametrize(
    ("change", "check", "verdict", "reading"),
    [
        ({"triton": None}, "Triton", "bad", "not installed"),
        ({"no_launchers": "The GPU kernels need a C compiler."}, "Triton", "bad", "cannot start"),
        ({"torch": None}, "versions", "bad", "torch not installed"),
        (
            {"measured_cards": {}},
            "kernels, card 0",
            "warn",
            "compute capability 9.0: Triton, next kernel launched early",
        ),
    ],
)
def test_missing_software_is_named(change: dict[str, Any], check: str, verdict: str, reading: str) -> None:
    found = only(check_software(replace(SOFTWARE, **change), (CARD,)))
    assert (found.check, found.verdict) == (check, verdict)
    assert reading in found.reading
    assert found.fix


def test_launches_of_a_card_with_the_same_chip_are_said_to_be_its() -> None:
    found = {one.check: one for one in check_software(SOFTWARE, (replace(CARD, name="NVIDIA H100 80GB HBM3"),))}
    kernels = found["kernels, card 0"]
    assert kernels.verdict == "ok"
    assert kernels.reading.endswith("launches measured on NVIDIA H200, which has the same chip")


def test_an_old_card_gets_no_kernels_and_an_ampere_no_early_launch() -> None:
    old = only(check_software(SOFTWARE, (replace(CARD, capability=(7, 5)),)))
    assert (old.verdict, "written for 8.0" in old.reading) == ("bad", True)
    *_, ampere = check_software(SOFTWARE, (replace(CARD, capability=(8, 6)),))
    assert "early" not in ampere.reading


def test_without_a_card_the_c_compiler_matters() -> None:
    assert only(check_software(replace(SOFTWARE, c_compiler=None), ())).fix.startswith("Install gcc")


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", "bad"),
        ("CUDA_VISIBLE_DEVICES", "-1", "bad"),
        ("TRITON_INTERPRET", "1", "bad"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "bad"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", "bad"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda-12.4/lib64", "warn"),
        ("CUDA_MODULE_LOADING", "EAGER", "warn"),
        ("PYTHONASYNCIODEBUG", "1", "warn"),
        ("FIRSTTOKEN_CPU_ARCH", "plain", "warn"),
        ("http_proxy", "set", "warn"),
    ],
)
def test_a_variable_that_does_harm_is_named(name: str, value: str, verdict: str) -> None:
    [found] = check_environment({name: value}, 16, True)
    assert (found.check, found.verdict) == (name, verdict)
    assert found.why
    assert found.fix


@pytest.mark.parametrize(
    "environment",
    [
        {"CUDA_LAUNCH_BLOCKING": "0"},
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_MODULE_LOADING": "LAZY"},
        {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"},
        {"http_proxy": "set", "no_proxy": "10.0.0.1,localhost"},
        {"OMP_NUM_THREADS": "1"},  # the card computes
    ],
)
def test_a_harmless_value_is_no_finding(environment: dict[str, str]) -> None:
    [found] = check_environment(environment, 16, True)
    assert (found.check, found.verdict) == ("variables", "ok")


def test_few_threads_matter_where_the_cpu_computes() -> None:
    [found] = check_environment({"OMP_NUM_THREADS": "1"}, 16, False)
    assert (found.check, found.verdict) == ("OMP_NUM_THREADS", "warn")


def test_only_known_variables_are_kept_and_no_proxys_password() -> None:
    environ = {"HF_TOKEN": "secret", "https_proxy": "http://me:secret@proxy:3128", "TRITON_INTERPRET": "1"}
    assert known_variables(environ) == {"https_proxy": "set", "TRITON_INTERPRET": "1"}
