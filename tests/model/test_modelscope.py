"""`--hub modelscope`, with a package in ModelScope's place that has the same functions and no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_API = """
class HubApi:
    def get_model_files(self, model_id, revision=None, root=None, recursive=True):
        if model_id != "owner/name":
            raise RuntimeError("404")
        names = ("config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin", "modeling.py")
        return [{"Path": name, "Size": 1000} for name in names]
"""

_SNAPSHOT = """
import json
import pathlib


def snapshot_download(model_id, revision=None, cache_dir=None, local_files_only=False, allow_patterns=None):
    print("a package that talks")
    folder = pathlib.Path(cache_dir, *model_id.split("/"))
    if local_files_only:
        if folder.exists():
            return str(folder)
        raise ValueError("not here")
    if revision == "full":
        raise OSError(28, "No space left on device")
    folder.mkdir(parents=True)
    for name in allow_patterns:
        (folder / name).write_text(json.dumps({}))
    return str(folder)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    hub = tmp_path / "packages" / "modelscope" / "hub"
    hub.mkdir(parents=True)
    for folder in (hub, hub.parent):
        (folder / "__init__.py").touch()
    (hub / "api.py").write_text(_API)
    (hub / "snapshot_download.py").write_text(_SNAPSHOT)
    return tmp_path / "packages"


def pull(packages: Path, cache: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firsttoken", "pull", "--hub", "modelscope", "--download-dir", str(cache), *args],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(packages)},
    )


def test_a_model_comes_from_modelscope_without_anything_that_could_run(package: Path, tmp_path: Path) -> None:
    result = pull(package, tmp_path / "cache", "owner/name")
    assert result.returncode == 0, result.stderr
    folder = Path(result.stdout.splitlines()[-1])
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads((folder / "config.json").read_text()) == {}
    assert "Fetching owner/name from ModelScope: 0.0 MB" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["owner/other"], "owner/other could not be fetched from ModelScope (RuntimeError); check its name"),
        (["owner/name", "--revision", "full"], "The disk became full while owner/name was fetched; make room"),
    ],
)
def test_what_goes_wrong_is_one_sentence(package: Path, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    result = pull(package, tmp_path / "cache", *arguments)
    assert result.returncode == 1
    assert f"Error: {sentence}" in result.stderr
    assert "Traceback" not in result.stderr


def test_without_its_package_it_says_how_to_get_it(tmp_path: Path) -> None:
    hidden = tmp_path / "modelscope"  # a package of that name with nothing in it, wherever the real one may be
    hidden.mkdir()
    (hidden / "__init__.py").touch()
    result = pull(tmp_path, tmp_path / "cache", "owner/name")
    assert result.returncode == 1
    assert 'run `pip install "firsttoken[modelscope]"`' in result.stderr
