"""The flags of `serve` and the config file of the same names: what they become, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from firsttoken.cli.grouped_options import GroupedCommand
from firsttoken.cli.options import engine_config, serve_options, server_config
from firsttoken.config import EngineConfig, ServerConfig
from firsttoken.errors import ConfigError


@click.command(cls=GroupedCommand)
@click.argument("model", required=False)
@serve_options
def command(model: str | None, **values: Any) -> dict[str, Any]:
    """`serve` that only hands back what it got."""
    return values | {"MODEL": model}


def parse(*arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    result = CliRunner().invoke(command, arguments, env=env, standalone_mode=False)
    if result.exception:
        raise result.exception
    values: dict[str, Any] = result.return_value
    return values


def test_without_flags_both_configs_have_their_own_defaults() -> None:
    values = parse()
    assert engine_config(values) == EngineConfig(model="", path="")
    assert server_config(values) == ServerConfig(tokenizer_path="")


def test_every_flag_reaches_a_config_and_every_setting_has_a_flag() -> None:
    fields = {field.name for kind in (EngineConfig, ServerConfig) for field in dataclasses.fields(kind)}
    found_elsewhere = {"model", "path", "tokenizer_path", "engine_socket"}
    assert (
        set(parse()) - {"MODEL", "hub", "revision", "download_dir", "ui", "ui_host", "ui_port"}
        == fields - found_elsewhere
    )


def test_either_flag_of_a_recording_gives_both_their_values(tmp_path: Path) -> None:
    for flags, steps, folder in (
        (("--profile-steps", "7"), 7, Path.cwd() / "profiles"),
        (("--profile-dir", str(tmp_path)), 100, tmp_path),
    ):
        engine = engine_config(parse(*flags))
        assert (engine.profile_steps, engine.profile_dir) == (steps, str(folder))
        assert server_config(parse(*flags)).profile_steps == steps


def test_flags_become_values() -> None:
    values = parse(
        "some/model",
        *("--max-model-len", "32K", "--kv-cache-memory", "1.5GiB", "--max-body-size", "500kB"),
        *("--no-enable-prefix-caching", "--rope-scaling", '{"rope_type": "yarn"}', "--api-server-count", "3"),
        *("--served-model-name", "a", "--served-model-name", "b", "--enforce-eager", "--drain-seconds", "2.5"),
    )
    engine, server = engine_config(values), server_config(values)
    assert values["MODEL"] == "some/model"
    assert engine.max_model_len == 32768
    assert engine.kv_cache_memory == 3 * 2**29
    assert engine.rope_scaling == {"rope_type": "yarn"}
    assert (engine.enable_prefix_caching, engine.enforce_eager) == (False, True)
    assert (server.max_body_bytes, server.api_workers, server.drain_seconds) == (500_000, 3, 2.5)
    assert server.served_model_names == ("a", "b")


@pytest.mark.parametrize(("text", "tokens"), [("4096", 4096), ("32k", 32_000), ("1.5K", 1536), ("auto", None)])
def test_a_length_may_carry_a_unit(text: str, tokens: int | None) -> None:
    assert engine_config(parse("--max-model-len", text)).max_model_len == tokens


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "32x", ""])
def test_a_length_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a number of tokens"):
        parse("--max-model-len", text)


@pytest.mark.parametrize("text", ["0", "-1", "GiB", "2 cups"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        parse("--kv-cache-memory", text)


def test_api_keys_come_from_flags_or_from_the_environment() -> None:
    assert server_config(parse("--api-key", "a", "--api-key", "b")).api_keys == ("a", "b")
    assert server_config(parse(env={"FIRSTTOKEN_API_KEY": "c d"})).api_keys == ("c", "d")


@pytest.mark.parametrize("key", ["", " ", "a b", "a\n", "ключ"])
def test_a_key_that_nobody_or_everybody_could_send_is_refused(key: str) -> None:
    with pytest.raises(click.BadParameter, match="a key has at least one character"):
        parse("--api-key", "good", "--api-key", key)


TOML = """
model = "some/model"
port = 9000
max-model-len = "8K"
enforce_eager = true
no-enable-prefix-caching = true
served-model-name = ["a", "b"]
api-key = "secret"
[rope-scaling]
rope_type = "linear"
factor = 2.0
"""


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_a_config_file_sets_what_flags_would(tmp_path: Path, kind: str) -> None:
    import tomllib

    text = TOML if kind == "toml" else json.dumps(tomllib.loads(TOML))
    values = parse("--config", write(tmp_path, f"serve.{kind}", text))
    engine, server = engine_config(values), server_config(values)
    assert values["MODEL"] == "some/model"
    assert (server.port, server.served_model_names, server.api_keys) == (9000, ("a", "b"), ("secret",))
    assert (engine.max_model_len, engine.enforce_eager, engine.enable_prefix_caching) == (8192, True, False)
    assert engine.rope_scaling == {"rope_type": "linear", "factor": 2.0}


def test_a_flag_wins_over_the_config_file(tmp_path: Path) -> None:
    path = write(tmp_path, "serve.toml", TOML)
    assert server_config(parse("--port", "1234", "--config", path)).port == 1234


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.toml", "prot = 1", "has an unknown key 'prot'; did you mean 'port'"),
        ("a.toml", "nonsense = 1", "has an unknown key 'nonsense'"),
        ("a.toml", "[serve]\nport = 1", r"has a section \[serve\]; write its keys without one"),
        ("a.toml", "config = 'b.toml'", "has an unknown key 'config'"),
        ("a.toml", "enforce-eager = 'yes'", "must be true or false"),
        ("a.toml", "port =", "cannot be read"),
        ("a.json", "[1]", "must hold one object"),
        ("a.yaml", "port: 1", r"must end in \.toml or \.json"),
    ],
)
def test_a_config_file_that_is_wrong_is_refused_by_name(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse("--config", write(tmp_path, name, text))


def test_a_wrong_value_in_a_config_file_names_the_file_and_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"In the config file .*a\.toml, 'port': 70000 is not in the range"):
        parse("--config", write(tmp_path, "a.toml", "port = 70000"))


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [("--port", "'abc' is not a valid integer."), ("--gpu-memory-utilization", "'abc' is not a valid number.")],
)
def test_what_is_no_number_is_called_so(flag: str, sentence: str) -> None:
    with pytest.raises(click.BadParameter, match=sentence):
        parse(flag, "abc")


def test_a_metrics_prefix_that_prometheus_refuses_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="letters, digits and underscores"):
        parse("--metrics-prefix", "my metrics")
