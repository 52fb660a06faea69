"""A session's page, table and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.tune.made_up_session import made_up

from firsttoken.errors import ConfigError
from firsttoken.tune.disturbance import Disturbance
from firsttoken.tune.outputs import write_outputs
from firsttoken.tune.records import DisturbedRun, Tuned, load
from firsttoken.tune.repeats import Fate
from firsttoken.tune.report import render
from firsttoken.tune.table import print_tuned
from firsttoken.tune.verdict_words import answer


class Page(HTMLParser):
    """Notes what is loaded from elsewhere, and whether every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        ]
        if tag not in ("meta", "br", "rect", "line", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("rect", "line", "circle", "path"):
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_tells_everything_in_both_languages_and_loads_nothing() -> None:
    page = Page()
    page.feed(render(made_up()))
    assert page.open == []
    assert page.loads == []
    for text in (
        "Change quantization = fp8: TPOT, median, gains +43.0 % on fresh runs",
        "请修改 quantization = fp8",
        "--max-num-seqs 256 --quantization fp8",
        "Before and after",
        "逐项结果",
        "cannot matter here: a step reads 99% of the bytes",
        "这里不可能有影响",
        "每步读取的字节为原来的 53%",
        "每 token 的 KL 为 0.004 nat",
        "its answers are not as good",
        "differed by 1.1 % here",
        "1 of 1 said rightly",
        "<out of memory>",  # as text
    ):
        assert text in page.text


def test_what_came_from_outside_is_escaped() -> None:
    page = render(made_up())
    assert "<out of memory>" not in page
    assert "&lt;b&gt;at most&lt;/b&gt;" in page


def test_a_session_that_keeps_nothing_says_how_much_may_be_left() -> None:
    tuned = made_up(kept=False)
    assert answer(tuned).en.startswith(
        "Keep your settings: nothing that was tried is shown to be better. At most 1.8 %"
    )
    assert "保持现有设置" in render(tuned)
    assert "Before and after" not in render(tuned)


def test_a_session_that_could_not_tell_does_not_say_that_all_is_well() -> None:
    tuned = msgspec.structs.replace(made_up(kept=False), best_left=0.9)
    assert answer(tuned).en.startswith("Not decided: this session leaves room for a gain of up to 90.0 % in a value.")
    assert answer(tuned).en.endswith("two launches of the same settings differed by 1.1 % here.")


def disturbed(fates: Sequence[Fate]) -> Tuned:
    others = Disturbance("cpu", "other programs used 1.0 of 2 cores", "其他程序占用了 2 个核中的 1.0 个")
    runs = [DisturbedRun(number=at, label="a < b", what=[others], fate=fate) for at, fate in enumerate(fates, 1)]
    return msgspec.structs.replace(made_up(kept=False), disturbed=runs, runs=75, unlike=1, client_limited=3)


def test_disturbed_runs_are_told_with_what_was_done_about_them() -> None:
    page = Page()
    page.feed(render(disturbed(["again", "again", "tried enough"])))
    assert page.open == []
    for text in (
        "3 of 74 measurements were disturbed: other programs on the CPU (3). What was done: 2 measured again; 1 stayed",
        "Quiet and disturbed runs of one pair or block were not compared (1).",
        "74 次测量中有 3 次受到干扰：其他程序占用 CPU（3 次）",
        "a < b",
        "其他程序占用了 2 个核中的 1.0 个",
        "In 3 runs the benchmark's own client was the limit",
    ):
        assert text in page.text
    assert "Disturbed runs" not in render(made_up())


@pytest.mark.parametrize(("stayed", "said"), [(7, False), (8, True)])
def test_from_a_tenth_of_the_runs_on_the_answer_says_that_the_machine_was_not_quiet(stayed: int, said: bool) -> None:
    fates: list[Fate] = ["again"] * 2
    tuned = disturbed(fates + ["never quiet"] * stayed)
    assert ("The machine was not quiet" in answer(tuned).en) is said
    assert ("机器并不安静" in answer(tuned).zh) is said
    if said:
        assert answer(tuned).en.endswith(
            "8 of 72 runs stayed disturbed (other programs on the CPU (8)). Stop what else uses it and tune again."
        )


def test_the_files_are_written_and_read_again(tmp_path: Path) -> None:
    tuned = made_up()
    written = write_outputs(tmp_path, tuned)
    assert [path.name for path in written] == ["config.toml", "report.html", "result.json"]
    assert load(tmp_path / "result.json") == tuned
    assert (tmp_path / "config.toml").read_text() == tuned.config
    with pytest.raises(ConfigError, match="no finished session"):
        load(tmp_path / "elsewhere" / "result.json")


def test_the_table_shows_each_knob_and_the_answer() -> None:
    console = Console(record=True, width=140, file=open("/dev/null", "w"))  # noqa: SIM115
    print_tuned(console, made_up())
    console.file.close()
    text = console.export_text()
    assert re.search(r"quantization = fp8\s+helps\s+\+41.0 %\s+\+40.0 % … \+42.2 %\s+\+49.2 %\s+kept", text)
    assert "quantization = int4: its answers are not as good" in text
    assert "Change quantization = fp8" in text
