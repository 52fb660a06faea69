from __future__ import annotations

import json
from pathlib import Path

import pytest

from firsttoken.cli.main import main


def test_without_a_card_the_host_is_measured_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("FIRSTTOKEN_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as left:
        main(["doctor", "ceilings", "--json"])
    assert left.value.code == 0
    found = json.loads(capsys.readouterr().out)
    (memory,) = found["ceilings"]
    assert memory["name"] == "host memory, read"
    assert memory["measured"] > 1e8
    assert "no NVIDIA GPU" in found["notes"][0]
