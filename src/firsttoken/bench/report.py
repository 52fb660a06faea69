"""A run as one HTML file that needs no network, in English and Chinese: verdict, figures, charts, definitions.

Everything that a server, a model's name or a command line put into the run is escaped, and the page's own policy
forbids it to load anything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from firsttoken.bench import figures, units, words
from firsttoken.bench.folded_checks import fold
from firsttoken.bench.records import RunResult, Sample, ScenarioResult
from firsttoken.bench.report_page import html_page, page_head
from firsttoken.bench.report_parts import (
    definitions,
    figure,
    folded_list,
    level_of,
    overview_row,
    scenario_section,
    share_list,
    sweep_rows,
)
from firsttoken.bench.report_provenance import provenance
from firsttoken.bench.report_sensors import sensor_section
from firsttoken.bench.table import why_no_ceilings
from firsttoken.bench.words import Words

_VERDICTS = {
    "ok": Words("Every self-check passed.", "全部自检通过。"),
    "flag": Words("Usable with care: some self-checks raised a flag.", "可以参考，但请留意：部分自检给出了提示。"),
    "fail": Words("Do not use these figures: a self-check failed.", "这些数字不可用：有自检未通过。"),
}


def write_report(path: Path, result: RunResult) -> None:
    """Writes the page; `result` needs its raw records for the charts of single requests."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(result), encoding="utf-8")


def render(result: RunResult) -> str:
    """The whole page."""
    body = "".join(
        [
            _head(result),
            _verdict(result),
            _overview(result),
            _shares(result),
            *(
                _sweep(name, points, result.samples, number)
                for number, (name, points) in enumerate(_sweeps(result).items())
            ),
            *(
                scenario_section(s, result.samples, number)
                for number, s in enumerate(result.scenarios)
                if s.sweep is None
            ),
            sensor_section(result),
            definitions(),
            provenance(result),
        ]
    )
    return html_page(f"{result.model or 'model'} · firsttoken bench", body)


def _head(result: RunResult) -> str:
    server = " ".join(part for part in (result.server.kind, result.server.version) if part)
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(result.created)) if result.created else ""
    facts: list[tuple[Words, str]] = [
        (Words("Server", "服务"), server or "?"),
        (Words("Address", "地址"), result.url),
        (Words("Measured", "测量时间"), day),
    ]
    if result.ready_seconds is not None:
        facts.append((Words("Launch to ready", "启动到就绪"), units.seconds(result.ready_seconds)))
    if result.server.max_model_len:
        facts.append((Words("Context", "上下文"), f"{result.server.max_model_len:,} tokens"))
    return page_head(result.model or "?", facts)


def _verdict(result: RunResult) -> str:
    every = [("", check) for check in result.checks]
    every += [(scenario.name, check) for scenario in result.scenarios for check in scenario.checks]
    level = level_of([check for _, check in every])
    worth = [(name, check) for name, check in every if check.level != "ok"]
    unfinished = [scenario.name for scenario in result.scenarios if not scenario.complete]
    broken = ""
    if unfinished:
        names = ", ".join(unfinished)
        broken = Words(
            f"Broken off before it was done: {names}. What was measured until then is shown.",
            f"未跑完：{names}。这里显示中断之前测到的部分。",
        ).html
        broken = f'<p class="small">{broken}</p>'
    checks = folded_list(fold(worth))
    return f'<div class="verdict {level}"><strong>{_VERDICTS[level].html}</strong>{broken}{checks}</div>\n'


def _overview(result: RunResult) -> str:
    if not result.scenarios:
        return f"<p>{Words('No scenario has run.', '还没有运行任何场景。').html}</p>\n"
    heads = [
        Words("Scenario", "场景"),
        Words("TTFT, median", "TTFT 中位数"),
        Words("TPOT, median", "TPOT 中位数"),
        Words("Worst gap", "最长间隔"),
        words.OUTPUT,
        Words("End to end, median", "端到端中位数"),
        Words("Answered", "成功"),
        Words("Checks", "自检"),
    ]
    rows = "".join(overview_row(scenario, number) for number, scenario in enumerate(result.scenarios))
    head = "".join(f"<th>{name.html}</th>" for name in heads)
    return (
        f"<h2>{Words('At a glance', '概览').html}</h2>\n"
        f'<div class="scroll"><table class="big"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n'
    )


def _shares(result: RunResult) -> str:
    found = [(scenario.name, share) for scenario in result.scenarios for share in scenario.shares]
    heading = f"<h2>{Words('Against the ceiling', '与性能上限对比').html}</h2>\n"
    if not found:
        why = why_no_ceilings(result)
        note = Words(why, f"本次运行没有可用的上限：需要模型配置（--model-config）和本机实测带宽。（{why}）")
        return f'{heading}<p class="soft">{note.html}</p>\n'
    caption = Words("Share of the ceiling that was reached", "达到上限的比例")
    explained = Words("How each ceiling comes about", "各上限如何得出")
    chart = figure("shares", caption, figures.shares(result, "shares"), whole=True)
    return (
        f'{heading}<div class="charts">{chart}</div>\n'
        f"<details><summary>{explained.html}</summary>{share_list(found)}</details>\n"
    )


def _sweeps(result: RunResult) -> dict[str, list[ScenarioResult]]:
    found: dict[str, list[ScenarioResult]] = {}
    for scenario in result.scenarios:
        if scenario.sweep is not None:
            found.setdefault(scenario.scenario, []).append(scenario)
    return {name: sorted(points, key=figures.load_value) for name, points in found.items()}


def _sweep(name: str, points: list[ScenarioResult], samples: Sequence[Sample], number: int) -> str:
    title = Words(points[0].title or name, points[0].title_zh or points[0].title or name)
    throughput, latency = f"sweep-{number}-throughput", f"sweep-{number}-latency"
    charts = "".join(
        [
            figure(
                throughput,
                Words("Throughput against load", "吞吐量随负载变化"),
                figures.sweep_throughput(points, throughput),
            ),
            figure(latency, Words("Latency against load", "延迟随负载变化"), figures.sweep_latency(points, latency)),
        ]
    )
    sections = "".join(
        f'<details id="{escape(point.name)}"><summary>{words.load_name(point.load).html}</summary>'
        f"{scenario_section(point, samples, 1000 * (number + 1) + at, nested=True)}</details>"
        for at, point in enumerate(points)
    )
    return f'<h2>{title.html}</h2>\n<div class="charts">{charts}</div>\n{sweep_rows(points)}{sections}\n'
