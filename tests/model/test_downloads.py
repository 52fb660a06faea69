"""Where downloads go, whether they fit, and what is shown of them."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from firsttoken.errors import DownloadError
from firsttoken.model.downloads import TextProgress, check_space, megabytes, shown
from tests.model.silent_progress import Silent


def test_space_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    check_space(tmp_path / "not" / "there", 1, "a byte", "--elsewhere")
    with pytest.raises(DownloadError, match=r"needs 1000000000\.00 GB of disk.*another place with --elsewhere\.$"):
        check_space(tmp_path / "not" / "there", 10**18, "everything", "--elsewhere")


def wait_for(done: int, progress: Silent) -> None:
    end = time.monotonic() + 10
    while done not in progress.seen:
        assert time.monotonic() < end, progress.seen[-5:]


def test_progress_follows_the_bytes_on_disk(tmp_path: Path) -> None:
    progress = Silent()
    with shown(progress, "thing", 100, tmp_path, interval=0.001):
        (tmp_path / "part").write_bytes(b"x" * 60)
        wait_for(60, progress)
        (tmp_path / "part").write_bytes(b"x" * 600)
        wait_for(100, progress)  # never more than all
        (tmp_path / "part").write_bytes(b"x" * 10)
        steps = len(progress.seen)
        while len(progress.seen) < steps + 3:
            time.sleep(0.001)
    assert progress.seen == sorted(progress.seen)  # a bar that went back would look like a loss
    assert progress.started == [("thing", 100)]
    assert max(progress.seen) == 100
    assert progress.finished == 1


def test_without_a_terminal_progress_is_a_few_lines() -> None:
    stream = io.StringIO()
    progress = TextProgress(stream)
    progress.start("model.gguf", 98_362_432)
    for done in range(0, 98_362_432, 1_000_000):
        progress.advance(done)
    progress.finish()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Fetching model.gguf: 98.4 MB"
    assert len(lines) == 10
    assert megabytes(8_044_936_192) == "8.04 GB"
