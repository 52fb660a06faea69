"""Spaces, command lines, and which values are tried on which machine for which work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest
from tests.qwen3_4b import CONFIG

from firsttoken.bench.model_costs import ModelCosts
from firsttoken.bench.roofline import Roofline
from firsttoken.cli.config_file import read_config
from firsttoken.cli.serve import serve
from firsttoken.errors import ConfigError
from firsttoken.machine.gpu_ceilings import Ceilings
from firsttoken.model.config import parse_config
from firsttoken.tune.arms import Arm, Value
from firsttoken.tune.choose import Choice, choose
from firsttoken.tune.config_text import config_text
from firsttoken.tune.probe import Probe
from firsttoken.tune.space import ENGINES, Space, load_space, parse_setting, parse_values, values_of


@pytest.fixture
def space() -> Space:
    return load_space("firsttoken")


def h200(**changed: object) -> Probe:
    """4B in bf16 on an H200: four streams at about a thousand tokens."""
    costs = ModelCosts(weight_bytes=8.04e9, kv_bytes_per_token=147456, config=parse_config(CONFIG))
    fields: dict[str, object] = {
        "seconds": 30.0,
        "device": "cuda",
        "card": "NVIDIA H200",
        "memory_total": 150 << 30,
        "memory_free": 150 << 30,
        "cores": 16,
        "streams": 4.0,
        "most_streams": 8,
        "prompt": 900.0,
        "longest": 1300,
        "longest_prompt": 1200,
        "output": 100.0,
        "ttft": 0.02,
        "tpot": 0.0025,
        "bounds": msgspec.to_builtins(Roofline(costs, Ceilings("NVIDIA H200", 4.41e12, 2e12, 791e12))),
    }
    return msgspec.convert(fields | changed, Probe)


def why(choice: Choice, knob: str, value: object) -> str:
    return next(one.why.en for one in choice.skipped if one.arm == Arm(knob, value))  # type: ignore[arg-type]


def everything(space: Space) -> dict[str, list[object]]:
    return {knob.name: [] for knob in space.knob}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_space_that_ships_makes_command_lines(engine: str) -> None:
    space = load_space(engine)
    for knob in space.knob:
        for device in knob.values:
            for value in values_of(knob, device, cores=8):
                command = space.launch("org/model", 8123, {knob.name: value}, "--seed 1")
                assert "8123" in shlex.split(command)
                assert "org/model" in command
        assert knob.what
        assert knob.what_zh


def test_firsttokens_own_flags_are_flags_of_serve_and_keys_of_its_config(space: Space, tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        settings = {knob.name: values_of(knob, device, 8)[0] for knob in space.knob if device in knob.values}
        words = shlex.split(space.shown("demo", settings))
        assert words[:2] == ["firsttoken", "serve"]
        by_flag = serve.make_context("serve", words[2:]).params
        file = tmp_path / f"{device}.toml"
        file.write_text(config_text(space, settings))
        assert read_config(file) == settings
        assert serve.make_context("serve", ["demo", "--config", str(file)]).params == by_flag


def test_settings_are_read_as_numbers_truths_and_words(space: Space) -> None:
    assert parse_setting(space, "cpu-threads=1") == ("cpu-threads", 1)
    assert parse_setting(space, "enable-prefix-caching=off") == ("enable-prefix-caching", False)
    assert parse_setting(space, "quantization=fp8") == ("quantization", "fp8")
    with pytest.raises(ConfigError, match="did you mean 'cpu-threads'"):
        parse_setting(space, "cpu-thread=1")
    with pytest.raises(ConfigError, match="KNOB=VALUE"):
        parse_setting(space, "cpu-threads")


def test_values_of_a_list_are_told_apart_by_semicolons(space: Space) -> None:
    assert parse_values(space.find("max-num-seqs"), "32, 128") == [32, 128]
    assert parse_values(space.find("cudagraph-capture-sizes"), "1,2,4; 1,8") == ["1,2,4", "1,8"]
    assert parse_values(space.find("cudagraph-capture-sizes"), "") == []


def test_a_template_needs_a_place_for_port_and_flags() -> None:
    with pytest.raises(ConfigError, match="port"):
        load_space("firsttoken", command="my-server --port 8000")
    own = load_space("vllm", command="docker run img {model} --port {port} {flags}")
    assert own.launch("m", 1, {"max-num-seqs": 8}) == "docker run img m --port 1 --max-num-seqs 8"


def sizes_of(space: Space) -> Value:
    return space.find("cudagraph-capture-sizes").values["cuda"][0]


def test_what_cannot_matter_for_the_work_is_skipped_with_the_reason(space: Space) -> None:
    choice = choose(space, everything(space), {}, h200(), "throughput")  # type: ignore[arg-type]
    assert why(choice, "enable-prefix-caching", False) == (
        "cannot matter here: no request begins as an earlier one did"
    )
    assert "never more than 8 requests at once" in why(choice, "max-num-seqs", 512)
    tried = {candidate.arm for candidate in choice.candidates}
    assert Arm("quantization", "fp8") in tried
    assert not any(arm.knob == "cpu-threads" for arm in tried)
    alone = choose(space, everything(space), {}, h200(most_streams=1, streams=1.0), "throughput")  # type: ignore[arg-type]
    assert "one process serves 1 streams" in why(alone, "api-workers", 4)
    assert "nothing decodes beside a prompt" in why(alone, "max-step-ms", 30)
    assert "one and two rows have graphs" in why(alone, "cudagraph-capture-sizes", sizes_of(space))
    assert Arm("launch-table", "none") in tried, "this card has measured launches"
    other = choose(space, everything(space), {}, h200(card="NVIDIA A10G"), "throughput")  # type: ignore[arg-type]
    assert "no launches were measured for this card" in why(other, "launch-table", "none")


@pytest.mark.parametrize(
    "changed",
    [{}, {"most_streams": 1, "streams": 1.0}, {"repeated": 600.0}, {"card": "NVIDIA A10G", "memory_total": 10 << 30}],
)
def test_every_reason_is_told_in_chinese_too(space: Space, changed: dict[str, object]) -> None:
    for engine in (space, load_space("vllm")):
        choice = choose(engine, everything(engine), {}, h200(**changed), "ttft_p99")  # type: ignore[arg-type]
        texts = [one.why for one in choice.skipped] + [one.text for one in choice.predictions.values()]
        assert texts
        assert all(
            re.search("[\u4e00-\u9fff]", one.zh) and not re.search("[a-z]{3,} [a-z]{2,}", one.zh) for one in texts
        )


def test_a_knob_that_the_user_names_with_values_is_tried_whatever_is_predicted(space: Space) -> None:
    choice = choose(space, {"api-workers": [4]}, {}, h200(most_streams=1), "throughput")
    assert [candidate.arm for candidate in choice.candidates] == [Arm("api-workers", 4)]


def test_fewer_bytes_of_weights_are_predicted_by_the_roofline(space: Space) -> None:
    choice = choose(space, {"quantization": ["fp8", "int4"]}, {}, h200(), "tpot")
    gains = {candidate.arm.value: candidate.predicted for candidate in choice.candidates}
    # 8.04 GB of weights and 0.55 GB of keys and values: 8.59 over 4.57, and over 2.56.
    assert gains["fp8"] == pytest.approx(0.631, abs=0.01)
    assert gains["int4"] == pytest.approx(1.21, abs=0.02)
    assert all(candidate.numerics for candidate in choice.candidates)


def test_a_prefix_cache_is_predicted_by_what_a_dialogue_repeats(space: Space) -> None:
    probe = h200(repeated=600.0)
    choice = choose(space, {"enable-prefix-caching": []}, {"enable-prefix-caching": False}, probe, "ttft_p99")
    (candidate,) = choice.candidates
    assert candidate.arm == Arm("enable-prefix-caching", True)
    assert candidate.predicted == pytest.approx(1.0986, abs=1e-3)  # 900 tokens become 300


def test_what_does_not_fit_is_dropped_before_it_is_launched(space: Space) -> None:
    small = h200(memory_total=10 << 30, memory_free=9 << 30)
    choice = choose(space, {"max-num-batched-tokens": [8192, 262144]}, {}, small, "throughput")
    assert "it does not fit" in why(choice, "max-num-batched-tokens", 262144)


def test_a_card_without_the_products_is_not_asked_for_them(space: Space) -> None:
    choice = choose(space, {"quantization": ["fp8"]}, {}, h200(card="NVIDIA A10G"), "tpot")
    assert "compute capability 8.9" in why(choice, "quantization", "fp8")


def test_another_engines_answers_are_not_changed_since_nobody_could_judge_them() -> None:
    vllm = load_space("vllm")
    choice = choose(vllm, everything(vllm), {}, h200(), "tpot")  # type: ignore[arg-type]
    assert "firsttoken alone" in why(choice, "kv-cache-dtype", "fp8")
    assert not any(candidate.numerics for candidate in choice.candidates)
