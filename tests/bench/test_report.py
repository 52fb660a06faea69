"""The HTML page: whole, offline, in two languages, and safe whatever a server says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.bench.made_up_run import made_up_run

from firsttoken.bench.records import Check, RunResult, Sample
from firsttoken.bench.report import render, write_report

VOID = {"meta", "br", "hr", "img", "input", "link"}
LOADING = {"src", "srcset", "href", "data", "action", "poster", "background", "cite", "formaction", "xlink:href"}


class Page(HTMLParser):
    """Every tag with its attributes, the text, and a check that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.classes: list[set[str]] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag not in VOID:
            self._open.append(tag)
            self.classes.append(set(found.get("class", "").split()))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag
        self.classes.pop()

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def assert_loads_nothing(text: str) -> None:
    for tag, attributes in Page(text).tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form"), tag
        for name in LOADING & set(attributes):
            assert attributes[name].startswith("#"), f"<{tag} {name}={attributes[name]!r}>"
    style_and_script = "".join(re.findall(r"<(?:style|script)[^>]*>(.*?)</(?:style|script)>", text, re.S))
    assert not re.search(r"url\(|@import|https?:|fetch\(|XMLHttpRequest|import\(", style_and_script)


def test_a_worst_token_gap_that_is_absent_is_said_to_be() -> None:
    run = made_up_run()
    absent = "the server did not count each chunk's tokens"
    assert absent not in Page(render(run)).text
    first = run.scenarios[0].metrics
    assert first is not None
    first.worst_token_gap = None
    assert absent in Page(render(run)).text


def test_the_page_is_whole_small_and_loads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.html"
    write_report(path, made_up_run())
    text = path.read_text(encoding="utf-8")
    assert_loads_nothing(text)
    assert "default-src 'none'" in text
    assert len(text.encode()) < 1_000_000
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    targets = [attributes["href"][1:] for tag, attributes in page.tags if tag == "a"]
    assert targets
    assert set(targets) <= set(page.ids)


def test_every_chart_is_named_for_those_who_cannot_see_it() -> None:
    page = Page(render(made_up_run()))
    charts = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(charts) > 15
    for attributes in charts:
        assert attributes["role"] == "img"
        assert attributes["aria-labelledby"] in page.ids


def test_both_languages_say_all_of_it() -> None:
    text = render(made_up_run())
    english, chinese = (len(re.findall(f'class="(?:[^"]* )?{name}"', text)) for name in ("en", "zh"))
    assert english == chinese > 100
    for words in ("At a glance", "概览", "Against the ceiling", "与性能上限对比", "GPU and host", "GPU 与主机"):
        assert words in text


def test_figures_stand_beside_their_ceilings_and_checks_in_words() -> None:
    failed = Check(name="client", level="fail", text="The client was the limit.")
    text = Page(render(made_up_run(checks=[failed]))).text
    assert "Do not use these figures: a self-check failed." in text
    assert "The client was the limit." in text
    assert "ceiling" in text
    assert "1.83 ms" in text
    assert "gpu0: this card has no sensor for energy_j." in text
    assert "power limit (1)" in text


def test_what_a_server_or_a_user_names_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    run = made_up_run(checks=[Check(name=evil, level="flag", text=evil)])
    run.model = run.url = run.version = run.server.kind = run.server.version = run.server.command = evil
    run.command, run.absent = [evil], [evil]
    run.server.details, run.machine, run.ceilings = {evil: evil}, {evil: evil}, {evil: 1.0}
    for scenario in run.scenarios:
        scenario.title = scenario.title_zh = scenario.name = evil
        scenario.records[0].error = evil
        for record in scenario.records:
            record.group = evil
        if scenario.metrics is not None:
            scenario.group_metrics = {evil: scenario.metrics}
            scenario.metrics.slo = {evil: 1.0}
    run.samples.append(Sample(at=run.samples[0].at, source=evil, values={"power_w": 1.0, evil: 2.0}, states=[evil]))
    run.samples.append(Sample(at=run.samples[0].at + 1, source=evil, values={"power_w": 1.0}))
    text = render(run)
    assert_loads_nothing(text)
    assert "<script>alert" not in text
    assert [tag for tag, _ in Page(text).tags].count("script") == 1
    assert not [a for _, attributes in Page(text).tags for a in attributes if a.startswith("on")]


@pytest.mark.parametrize("empty", ["no scenario", "no figures", "no samples"])
def test_a_run_that_broke_off_still_makes_a_page(empty: str) -> None:
    run = RunResult() if empty == "no scenario" else made_up_run()
    if empty == "no figures":
        for scenario in run.scenarios:
            scenario.metrics, scenario.records, scenario.shares, scenario.complete = None, [], [], False
    if empty == "no samples":
        run.samples = []
    text = render(run)
    assert_loads_nothing(text)
    if empty == "no figures":
        assert "Broken off before it was done: quicksort" in text
        assert "nothing measured" in text


def test_a_sweep_of_thousands_of_requests_stays_small() -> None:
    text = render(made_up_run(sweep=(1, 16, 128)))
    assert "requests are left out" in text
    assert len(text.encode()) < 1_000_000
