"""What `serve` prints while it starts and once it is ready."""

from __future__ import annotations

import io
import time

from tests.engine.fake_engine import info

from firsttoken.cli.summary import Report, process_birth, summary


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_phase_is_one_line() -> None:
    err = io.StringIO()
    report = Report("http://127.0.0.1:1", time.monotonic(), io.StringIO(), err)
    for fraction in (0.1, 0.2, 0.3):
        report.progress("weights", fraction)
    report.progress("warm-up", 0.9)
    assert err.getvalue().splitlines() == ["Loading: weights (10%)", "Loading: warm-up (90%)"]


def test_in_a_terminal_a_bar_is_drawn_and_gone_before_the_next_line() -> None:
    err = Terminal()
    report = Report("http://127.0.0.1:1", time.monotonic(), io.StringIO(), err)
    report.progress("weights", 0.5)
    assert "Loading: weights" in err.getvalue()
    report.error("Something is wrong.")
    assert err.getvalue().endswith("Error: Something is wrong.\n")
    assert "\x1b[?25h" in err.getvalue()  # the cursor is back


def test_the_summary_says_what_runs_and_where_the_time_went() -> None:
    what = info(
        model="m", num_blocks=100, block_size=16, kv_bytes_per_token=1 << 20, weight_bytes=3 << 30, max_num_seqs=8
    )
    lines = summary(what, "http://h:1", 2.0, {"launch": 0.25, "weights": 1.5, "kv": 0.01}).splitlines()
    assert lines[0].endswith(" serves m at http://h:1/v1")
    rows = {line[2:18].strip(): line[18:] for line in lines[1:]}
    assert rows["KV cache"] == "1,600 tokens in 100 blocks of 16, 1.56 GiB"
    assert rows["longest context"] == "4,096 tokens"
    assert rows["weights"] == "3.00 GiB read a token; none"
    assert rows["ready in"] == "2.00 s: launch 0.25, weights 1.50, other 0.24"


def test_the_process_was_born_before_now_and_not_long_ago() -> None:
    assert time.monotonic() - 3600 < process_birth() <= time.monotonic()
