"""One file over HTTP, from a server that hangs up, knows no ranges, or sends something else."""

from __future__ import annotations

import hashlib
import random
import threading
from pathlib import Path

import httpx
import pytest

from firsttoken.errors import DownloadError
from firsttoken.model.resumable import fetch_resumable, partial_of
from tests.model.fake_hub import FakeHub, fake_hub

CONTENT = random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def fetch(hub: FakeHub, target: Path, *, size: int | None = len(CONTENT), sha256: str | None = SHA256) -> None:
    fetch_resumable(f"{hub.url}/owner/name/resolve/main/file", target, size=size, sha256=sha256, pause=0.0)


def ranges(hub: FakeHub) -> list[str | None]:
    return [wanted for _, wanted in hub.asked]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_broken_connection_is_taken_up_where_it_broke(tmp_path: Path, size: int | None) -> None:
    with fake_hub({"file": CONTENT}) as hub:
        hub.cuts = [100_000, 50_000]
        fetch(hub, tmp_path / "file", size=size)
        assert ranges(hub) == [None, "bytes=100000-", "bytes=150000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_beginning_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    target = tmp_path / "file"
    partial_of(target).write_bytes(CONTENT[:200_000])
    with fake_hub({"file": CONTENT}) as hub:
        fetch(hub, target)
        fetch(hub, target)
        assert ranges(hub) == ["bytes=200000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_whole_again(tmp_path: Path) -> None:
    target = tmp_path / "file"
    partial_of(target).write_bytes(CONTENT[:200_000])
    with fake_hub({"file": CONTENT}) as hub:
        hub.knows_ranges = False
        fetch(hub, target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"!", CONTENT[:-1], CONTENT + b"!"])
def test_wrong_content_is_thrown_away(tmp_path: Path, wrong: bytes) -> None:
    with fake_hub({"file": wrong}) as hub, pytest.raises(DownloadError, match="wrong size or checksum"):
        fetch(hub, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_never_goes_on_is_given_up_and_what_came_is_kept(tmp_path: Path) -> None:
    with fake_hub({"file": CONTENT}) as hub:
        hub.cuts = [1000, 0, 0, 0, 0, 0]
        with pytest.raises(httpx.TransportError):
            fetch(hub, tmp_path / "file")
        assert ranges(hub) == [None, *["bytes=1000-"] * 5]
        assert partial_of(tmp_path / "file").read_bytes() == CONTENT[:1000]


def test_two_at_once_fetch_it_once(tmp_path: Path) -> None:
    with fake_hub({"file": CONTENT}) as hub:
        threads = [threading.Thread(target=fetch, args=(hub, tmp_path / "file")) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ranges(hub) == [None]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
