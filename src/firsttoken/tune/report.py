"""A session as one HTML file that needs no network, in English and Chinese, in the benchmark's dress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from firsttoken.bench import units
from firsttoken.bench.compare import Comparison
from firsttoken.bench.compare import Row as Figure
from firsttoken.bench.report_page import html_page, page_head
from firsttoken.bench.report_parts import figure
from firsttoken.bench.statistics import Verdict as PairVerdict
from firsttoken.bench.svg import Series, chart, linear_axis
from firsttoken.bench.words import Words, same
from firsttoken.tune.interval_chart import LEGEND, Line, interval_chart
from firsttoken.tune.records import Point, Row, Tuned
from firsttoken.tune.stats import MARGIN, Verdict
from firsttoken.tune.unrest import disturbed_section
from firsttoken.tune.verdict_words import answer, interval, percent

_VERDICTS: dict[Verdict, tuple[Words, str, int]] = {
    "helps": (Words("helps", "有帮助"), "ok", 2),
    "hurts": (Words("hurts", "有害"), "fail", 4),
    "equivalent": (Words("equivalent", "无差别"), "", 5),
    "undecided": (Words("undecided", "未定"), "flag", 1),
}
_PAIR_VERDICTS: dict[PairVerdict, tuple[Words, str]] = {
    "better": (Words("better", "更好"), "ok"),
    "worse": (Words("worse", "更差"), "fail"),
    "equivalent": (Words("equivalent", "无差别"), ""),
    "undecided": (Words("undecided", "未定"), "flag"),
}


def write_report(path: Path, tuned: Tuned) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(tuned), encoding="utf-8")


def render(tuned: Tuned) -> str:
    """The whole page. Everything that came from outside is escaped."""
    body = [
        _head(tuned),
        _answer(tuned),
        _launch(tuned),
        _before_after(tuned.comparison),
        _knobs(tuned),
        _pareto(tuned.points),
        _rejected(tuned),
        disturbed_section(tuned),
        _method(tuned),
    ]
    return html_page(f"{tuned.model} · firsttoken tune", "".join(body))


def _head(tuned: Tuned) -> str:
    machine = str(tuned.machine.get("gpu") or tuned.machine.get("cpu") or "")
    limits = ", ".join(f"{name} {units.seconds(value)}" for name, value in tuned.slo.items())
    facts = [
        (Words("Engine", "引擎"), tuned.engine),
        (Words("Objective", "目标"), tuned.objective),
        (Words("Limits", "限制"), limits),
        (Words("Machine", "机器"), machine),
        (Words("Measured", "测量时间"), time.strftime("%Y-%m-%d %H:%M", time.localtime(tuned.created))),
        (Words("Runs", "运行次数"), f"{tuned.runs} · {units.seconds(tuned.spent)}"),
    ]
    work = "".join(f"<li>{Words(en, zh or en).html}</li>" for en, zh in tuned.workload)
    return page_head(tuned.model, facts) + f'<ul class="facts">{work}</ul>\n'


def _answer(tuned: Tuned) -> str:
    level = "ok" if tuned.changed else "flag" if any(row.verdict == "undecided" for row in tuned.rows) else "ok"
    return f'<div class="verdict {level}"><strong>{answer(tuned).html}</strong></div>\n'


def _launch(tuned: Tuned) -> str:
    name = tuned.config_name
    heading = Words("Launch it", "启动命令").html
    note = Words(
        f"The same settings lie beside this page as {name}, for --config.",
        f"同样的设置保存在本页旁边的 {name} 中，可用 --config 读取。",
    ).html
    config = f"<pre><code>{escape(tuned.config)}</code></pre>" if tuned.kept else ""
    before = Words("Before", "之前").html
    return (
        f"<h2>{heading}</h2>\n<p><code>{escape(tuned.command)}</code></p>\n"
        f'<p class="soft small">{before}: <code>{escape(tuned.baseline_command)}</code></p>\n'
        f'<p class="soft">{note}</p>{config}\n'
    )


# --- before and after ---


def _before_after(found: Comparison | None) -> str:
    if found is None:
        return ""
    heading = Words("Before and after", "前后对比").html
    note = Words(
        "Fresh pairs of launches that no decision was made from. All judged intervals hold together with 95 %.",
        "这些全新的成对启动没有参与任何决策。所有判定的区间同时成立的置信度为 95 %。",
    ).html
    heads = (
        Words("Figure", "指标"),
        Words("Before", "之前"),
        Words("After", "之后"),
        Words("After over before", "之后 ÷ 之前"),
        Words("Verdict", "结论"),
    )
    rows = "".join(_comparison_row(row) for row in found.rows)
    return f'<h2>{heading}</h2>\n<p class="soft">{note}</p>\n{_table(heads, rows, "")}'


def _comparison_row(row: Figure) -> str:
    name = Words(row.figure.name, _CHINESE.get(row.figure.key, row.figure.name))
    show: Callable[[float], str] = _SHOWN.get(row.figure.unit, units.rate)
    cells = "".join(f"<td>{show(value) if value is not None else units.NOTHING}</td>" for value in row.values)
    found = row.interval
    ratio, chip = "", ""
    if found is not None:
        ratio = f"{found.ratio:.3f}<span class='under'>{found.low:.3f} … {found.high:.3f}</span>"
        said, level = _PAIR_VERDICTS[found.verdict]
        chip = f'<span class="chip {level}">{said.html}</span>'
    place = f'<span class="under">{escape(row.scenario)}</span>' if row.scenario else ""
    return f'<tr><td class="wide">{name.html}{place}</td>{cells}<td>{ratio}</td><td>{chip}</td></tr>\n'


_CHINESE = {
    "ready": "启动到就绪",
    "worst_gap": "最长间隔",
    "worst_token_gap": "最长 token 间隔",
    "e2e": "端到端",
    "output_tokens_per_s": "输出 tok/s",
    "gpu_percent": "GPU 使用率",
    "vram_bytes": "显存",
    "power_w": "功率",
    "energy_j_per_token": "每 token 能耗",
    "server_cores": "服务占用的核数",
    "server_rss_bytes": "服务占用的内存",
}
_SHOWN: dict[str, Callable[[float], str]] = {
    "s": units.seconds,
    "bytes": units.size,
    "share": units.percent,
    "%": lambda value: f"{value:.0f} %",
}


# --- knobs ---


def _knobs(tuned: Tuned) -> str:
    rows = [row for row in tuned.rows if row.measured is not None]
    if not rows:
        return ""
    heading = Words("Knob by knob", "逐项结果").html
    rows = sorted(rows, key=lambda row: -row.measured.gain if row.measured else 0.0)
    lines = [
        Line(
            row.label,
            row.measured.gain,
            row.measured.low,
            row.measured.high,
            row.predicted,
            _VERDICTS[row.verdict][2] if row.verdict else 5,
        )
        for row in rows
        if row.measured is not None
    ]
    caption = Words("What each value adds", "每个取值的贡献")
    plot = figure("knobs", caption, interval_chart(lines, MARGIN, "knobs"), note=LEGEND.html, whole=True)
    heads = (
        Words("Value", "取值"),
        Words("Verdict", "结论"),
        Words("Measured", "实测"),
        Words("Predicted", "预测"),
        Words("Answers' quality", "回答质量"),
    )
    table = _table(heads, "".join(map(_knob_row, rows)), "small")
    return f'<h2>{heading}</h2>\n<div class="charts">{plot}</div>\n{table}{_predictions(tuned)}'


def _knob_row(row: Row) -> str:
    name, level, _ = _VERDICTS[row.verdict] if row.verdict else (same(""), "", 5)
    kept = f' <span class="chip ok">{Words("kept", "采用").html}</span>' if row.kept else ""
    by = Words("confirmed on fresh launches", "经全新启动确认") if row.confirmed else Words("by screening", "来自筛选")
    found = row.measured
    gain = (
        f'{percent(found.gain)}<span class="under">{interval(found)} · {found.pairs} {_PAIRS.html}</span>'
        if found
        else ""
    )
    prediction = Words(row.prediction, row.prediction_zh or row.prediction)
    predicted = percent(row.predicted) if row.predicted is not None else units.NOTHING
    unseen = Words("not measured", "未测量") if row.numerics else Words("cannot change", "不会改变")
    quality = Words(row.quality, row.quality_zh or row.quality).html if row.quality else unseen.html
    what = Words(row.what, row.what_zh or row.what).html
    return (
        f'<tr><td class="wide"><b>{escape(row.label)}</b>{kept}<span class="under">{what}</span></td>'
        f'<td><span class="chip {level}">{name.html}</span><span class="under">{by.html}</span></td>'
        f'<td>{gain}</td><td class="wide">{predicted}<span class="under">{prediction.html}</span></td>'
        f'<td class="wide">{quality}</td></tr>\n'
    )


_PAIRS = Words("pairs", "对")


def _predictions(tuned: Tuned) -> str:
    if not tuned.predictions_made:
        return ""
    right, made, error = tuned.predictions_right, tuned.predictions_made, percent(tuned.prediction_error).lstrip("+")
    text = Words(
        f"Predictions: {right} of {made} said rightly whether a value gains, costs or does nothing; their mean "
        f"error was {error}.",
        f"预测：{made} 个中有 {right} 个正确判断了提升、变差或无影响；平均误差 {error}。",
    )
    return f"<p>{text.html}</p>\n"


# --- what else was measured ---


def _pareto(points: Sequence[Point]) -> str:
    known = [point for point in points if {"ttft", "output_tokens_per_s"} <= point.figures.keys()]
    if len(known) < 2:
        return ""
    front = _front(known)
    groups = (
        (Words("tried", "尝试过"), [p for p in known if p not in front and not p.baseline and not p.kept], 5, False),
        (Words("front: nothing tried is better in both", "前沿：没有哪个在两方面都更好"), front, 0, True),
        (Words("baseline", "基线"), [p for p in known if p.baseline], 1, False),
        (Words("kept", "采用"), [p for p in known if p.kept], 2, False),
    )
    series = [
        Series(
            name,
            [(p.figures["output_tokens_per_s"], 1000 * p.figures["ttft"]) for p in group],
            colour=colour,
            dots=True,
            line=line,
            tips=[f"{p.label} ({p.runs})" for p in group],
        )
        for name, group, colour, line in groups
        if group
    ]
    xs = [p.figures["output_tokens_per_s"] for p in known]
    ys = [1000 * p.figures["ttft"] for p in known]
    x = linear_axis(Words("output tok/s", "输出 tok/s"), xs, from_zero=False)
    y = linear_axis(Words("TTFT, ms", "TTFT（毫秒）"), ys, from_zero=False)
    heading = Words("Throughput against first token", "吞吐量与首 token").html
    caption = Words("Every combination that ran; single runs are noisy", "所有运行过的组合；单次运行有噪声")
    plot = figure("pareto", caption, chart(series, x, y, label="pareto"), whole=True)
    return f'<h2>{heading}</h2>\n<div class="charts">{plot}</div>\n'


def _front(points: Sequence[Point]) -> list[Point]:
    """Points that no other beats in both figures, by throughput."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.figures["output_tokens_per_s"], p.figures["ttft"])):
        if not best or point.figures["ttft"] < best[-1].figures["ttft"]:
            best.append(point)
    return best[::-1]


def _rejected(tuned: Tuned) -> str:
    refused = [(row.label, Words(row.refused, row.refused_zh or row.refused)) for row in tuned.rows if row.refused]
    alone = {row.label for row in tuned.rows}
    refused += [(name, same(reason)) for name, reason in tuned.failed if name not in alone]
    if not refused:
        return ""
    heading = Words("Not tried, failed or refused", "未尝试、失败或被拒绝").html
    heads = (Words("Value", "取值"), Words("Why", "原因"))
    rows = "".join(f'<tr><td>{escape(name)}</td><td class="wide">{why.html}</td></tr>\n' for name, why in refused)
    return f"<h2>{heading}</h2>\n{_table(heads, rows, 'small')}"


def _method(tuned: Tuned) -> str:
    noise, least = percent(tuned.noise).lstrip("+"), percent(tuned.least).lstrip("+")
    heading = Words("How this was decided", "判定方法").html
    text = Words(
        f"Two launches of the same settings differed by {noise} here (standard deviation, drift taken out), so a value "
        f"had to gain {least} to be kept. Screening changes half of the knobs at once, in pairs of mirrored runs, and "
        "only chooses what to look at again. What is kept was confirmed on fresh launches in random order, each knob "
        "against the same server without it, by a t interval and a sign-flip test, with Holm's levels over the knobs "
        "and alpha shared out over planned looks; settings that change answers also had to keep their quality. The "
        "gain at the top comes from further runs that decided nothing: a winner of many looks better than it is. Gains "
        "of times are gains of speed: +25 % is four fifths of the time.",
        f"同样的设置启动两次，结果相差 {noise}（标准差，已扣除漂移），因此取值至少要提升 {least} 才会采用。"
        "筛选阶段以镜像成对的方式同时改变一半旋钮，只用来挑选值得再看的取值。采用的取值都在随机顺序的全新启动上确认："
        "每个旋钮与去掉它的同一服务比较，用 t 区间和符号翻转检验，按 Holm 方法控制多个旋钮的总错误率，并把 alpha "
        "分配到事先计划好的几次检查；会改变回答的设置还必须保持质量。顶部的提升来自没有参与任何决策的另外几次运行，"
        "因为从许多候选里选出的优胜者看起来总比实际更好。"
        "时间类指标的提升按速度计：+25 % 表示时间缩短为原来的五分之四。",
    )
    return f"<h2>{heading}</h2>\n<p>{text.html}</p>\n"


def _table(heads: Sequence[Words], rows: str, kind: str) -> str:
    head = "".join(f"<th>{name.html}</th>" for name in heads)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n'
    )
