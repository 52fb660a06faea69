from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from firsttoken.cli.options import engine_config
from firsttoken.cli.serve import serve
from firsttoken.doctor.fit.devices import cpu_device
from firsttoken.doctor.fit.form import fewer_bits, on_cpu
from firsttoken.doctor.fit.profiles import USES, profile
from firsttoken.errors import OutOfMemory
from firsttoken.machine.ceilings import MemoryCeiling
from firsttoken.machine.host import Host
from firsttoken.model.memory_plan import GIB, plan_memory
from tests.doctor.fit.asks import BF16, QWEN3_4B, ask_about


@pytest.mark.parametrize(
    ("card", "use"), [("H200", "chat"), ("H200", "long"), ("4090", "chat"), ("4090", "code"), ("3060", "chat")]
)
def test_serve_takes_a_profile_and_plans_what_it_says(card: str, use: str, tmp_path: Path) -> None:
    made = profile(ask_about(card), USES[use], ())
    path = tmp_path / "profile.toml"
    path.write_text(made.toml())
    context = serve.make_context("serve", ["--config", str(path)])
    assert context.params.pop("model") == "Qwen3-4B"
    assert context.params["port"] == USES[use].port
    config = engine_config(context.params)
    assert config.max_model_len == made.fit.context >= USES[use].least
    assert config.enable_prefix_caching
    demand = made.fit.ask.demand()
    assert demand.max_num_seqs == (config.max_num_seqs or demand.max_num_seqs)
    assert plan_memory(demand, made.fit.ask.device.memory).max_model_len == config.max_model_len


def test_a_cpus_profile_asks_for_the_cache_that_it_needs(tmp_path: Path) -> None:
    host = Host(cores=2, memory_total=64 * GIB, memory_available=48 * GIB)
    device = cpu_device(host, MemoryCeiling(20e9, 2, "2026-12-01"))
    ask = ask_about("4090", device=device, form=on_cpu("auto", "auto"), context=16_384, concurrency=2)
    path = tmp_path / "profile.toml"
    path.write_text(profile(ask, USES["chat"], ()).toml())
    params = serve.make_context("serve", ["--config", str(path)]).params
    assert (params["max_model_len"], params["kv_cache_memory"]) == (16_384, 2 * 16_384 * 294_912)


def test_a_use_takes_as_much_as_it_wants_where_that_is_there() -> None:
    assert profile(ask_about("H200"), USES["chat"], ()).fit.context == 32_768
    assert profile(ask_about("H200"), USES["long"], ()).fit.context == 262_144


def test_fewer_bits_are_taken_where_nothing_else_holds_enough() -> None:
    forms = fewer_bits(BF16, QWEN3_4B, (8, 6), gpu=True)
    made = profile(ask_about("3060"), USES["code"], forms)
    assert made.fit.ask.form == forms[1]
    assert tomllib.loads(made.toml())["quantization"] == "fp8"


def test_what_the_ask_names_is_kept() -> None:
    made = profile(ask_about("H200", context=10_000, max_num_seqs=7), USES["long"], ())
    assert tomllib.loads(made.toml())["max-model-len"] == 10_000
    assert tomllib.loads(made.toml())["max-num-seqs"] == 7


def test_a_use_that_the_card_cannot_hold_is_refused() -> None:
    with pytest.raises(OutOfMemory, match="less than the 65,536 tokens that a server for 'long' needs"):
        profile(ask_about("3060"), USES["long"], ())
