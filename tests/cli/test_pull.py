"""`firsttoken pull` as a user runs it, without a network."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.fake_serve import until
from tests.model.fake_hub import FakeHub, fake_hub

PULL = (sys.executable, "-m", "firsttoken", "pull")


def pull(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PULL, *args], capture_output=True, text=True, timeout=60, env=os.environ | (env or {}))


def environment(hub: FakeHub, home: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}


def test_a_model_that_is_here_already_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = pull(str(tmp_path))
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}\n")


def test_a_name_that_means_nothing_is_one_sentence(tmp_path: Path) -> None:
    result = pull("nonsense")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


def test_an_unknown_hub_is_wrong_use_and_lists_the_hubs() -> None:
    result = pull("demo", "--hub", "elsewhere")
    assert result.returncode == 2
    assert "modelscope" in result.stderr


def test_a_repository_is_fetched_with_its_size_named_first_and_nothing_that_could_run(tmp_path: Path) -> None:
    files = {
        "config.json": b"{}",
        "tokenizer.json": b"{ }",
        "model.safetensors": b"w" * 2_000_000,
        "pytorch_model.bin": b"pickle",
        "modeling_name.py": b"code",
    }
    with fake_hub(files) as hub:
        env = environment(hub, tmp_path)
        result = pull("owner/name", env=env)
        assert result.returncode == 0, result.stderr
        folder = Path(result.stdout.strip())
        assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
        assert "Fetching owner/name from Hugging Face: 2.0 MB\n" in result.stderr
        elsewhere = pull("owner/name", "--download-dir", str(tmp_path / "own"), env=env)
        assert elsewhere.stdout.startswith(str(tmp_path / "own"))
        for name, sentence in {
            "owner/gated": "Error: owner/gated is gated: accept its terms on Hugging Face and set HF_TOKEN.\n",
            "owner/other": "Error: There is no model owner/other on Hugging Face that you may read; check its name, or "
            "set HF_TOKEN.\n",
        }.items():
            refused = pull(name, env=env)
            assert (refused.returncode, refused.stderr) == (1, sentence)


def test_a_download_goes_on_where_ctrl_c_stopped_it(tmp_path: Path) -> None:
    weights = random.Random(0).randbytes(24_000_000)
    files = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": weights}
    with fake_hub(files, stall_after=23_000_000) as hub:
        env = os.environ | environment(hub, tmp_path)
        with subprocess.Popen([*PULL, "owner/name"], env=env, stderr=subprocess.PIPE, text=True) as first:
            try:
                assert hub.stalled.wait(60)
                until(lambda: any(path.stat().st_size > 10_000_000 for path in tmp_path.rglob("*.incomplete")))
                first.send_signal(signal.SIGINT)
                _, words = first.communicate(timeout=8)  # well before the hub's own client would give up waiting
            finally:
                first.kill()
        assert first.returncode == 130
        assert "Traceback" not in words
        again = pull("owner/name", env=environment(hub, tmp_path))
        assert again.returncode == 0, again.stderr
        assert (Path(again.stdout.strip()) / "model.safetensors").read_bytes() == weights
        first_range, second_range = [wanted for name, wanted in hub.asked if name == "model.safetensors"]
        assert first_range is None
        assert second_range is not None
        assert int(second_range.removeprefix("bytes=").rstrip("-")) > 10_000_000


def test_a_file_in_the_current_folder_shadows_no_module(tmp_path: Path) -> None:
    for name in ("huggingface_hub", "httpx", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    files = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": b"w" * 20_000_000}
    with fake_hub(files) as hub:
        command = [sys.executable, "-P", "-m", "firsttoken", "pull", "owner/name"]  # as the installed command runs it
        env = os.environ | environment(hub, tmp_path / "cache")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:
    result = pull("owner/name", env={"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)})
    assert result.returncode == 1
    assert "from http://127.0.0.1:9 (ConnectError); check that address, which HF_ENDPOINT names" in result.stderr
    assert "Traceback" not in result.stderr
