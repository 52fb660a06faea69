"""Parts of the report: a scenario's row, its section, its checks, and the definitions at the end."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from firsttoken.bench import figures, units, words
from firsttoken.bench.energy import Usage, scenario_usage
from firsttoken.bench.folded_checks import Folded
from firsttoken.bench.metrics import gaps
from firsttoken.bench.records import CeilingShare, Check, Distribution, Level, Metrics, Sample, ScenarioResult
from firsttoken.bench.words import Words

_SIGNS: dict[Level, str] = {"ok": "✓", "flag": "!", "fail": "✗"}
_LEVELS: dict[Level, Words] = {
    "ok": Words("passed", "通过"),
    "flag": Words("flagged", "有提示"),
    "fail": Words("failed", "未通过"),
}


def level_of(checks: Sequence[Check]) -> Level:
    """The worst of them; "ok" where there are none."""
    levels = {check.level for check in checks}
    return "fail" if "fail" in levels else "flag" if "flag" in levels else "ok"


def term(key: str, name: Words) -> str:
    """A metric's name with its definition under the pointer; the same text stands at the end of the page."""
    for known, _, text in words.DEFINITIONS:
        if known == key:
            both = f'data-en="{escape(text.en)}" data-zh="{escape(text.zh)}" title="{escape(text.en)}"'
            return f"<abbr {both}>{name.html}</abbr>"
    return name.html


def figure(label: str, caption: Words, svg: str, *, note: str = "", whole: bool = False) -> str:
    """A chart under its caption; `label` is the caption's id, which names the chart to a screen reader."""
    extra = f' <span class="soft">{note}</span>' if note else ""
    kind = ' class="whole"' if whole else ""
    return f'<figure{kind}><figcaption id="{escape(label)}">{caption.html}{extra}</figcaption>{svg}</figure>\n'


def folded_list(folded: Sequence[Folded]) -> str:
    """Checks in words, each with the scenarios that it belongs to."""
    if not folded:
        return ""
    items = []
    for one in folded:
        check, where = one.check, f"{one.where.html} · " if one.scenarios else ""
        name = words.check_name(check.name).html
        text = escape(check.text) if check.level == "ok" else words.advice(check.name, check.text).html
        items.append(
            f'<li class="{check.level}"><span class="sign">{_SIGNS[check.level]}</span>'
            f'<span><b>{where}{name}</b> <span class="soft">({_LEVELS[check.level].html})</span> '
            f"{text}</span></li>"
        )
    return f'<ul class="checks">{"".join(items)}</ul>'


def share_list(named: Sequence[tuple[str, CeilingShare]]) -> str:
    """A sentence for each ceiling."""
    rows = "".join(
        f"<tr><td>{escape(scenario)}</td><td>{words.figure_name(share.figure).html}</td>"
        f"<td>{_value(share.figure, share.measured)}</td><td>{_value(share.figure, share.ceiling)}</td>"
        f"<td>{units.percent(share.share)}</td><td>{words.bound_name(share.bound).html}</td>"
        f'<td class="wide">{escape(share.text)}</td></tr>'
        for scenario, share in named
    )
    heads = (
        Words("Scenario", "场景"),
        Words("Figure", "指标"),
        Words("Measured", "实测"),
        Words("Ceiling", "上限"),
        Words("Share", "占比"),
        Words("Set by", "受限于"),
        Words("Why", "依据"),
    )
    head = "".join(f"<th>{name.html}</th>" for name in heads)
    return f'<div class="scroll"><table class="small"><tr>{head}</tr>{rows}</table></div>'


def overview_row(scenario: ScenarioResult, number: int) -> str:
    """One scenario's figures, each with its ceiling beneath."""
    anchor = scenario.name if scenario.sweep else f"scenario-{number}"
    name = f'<a href="#{escape(anchor)}">{_title(scenario).html}</a>'
    under = f'<span class="under">{escape(scenario.name)} · {words.load_name(scenario.load).html}</span>'
    metrics = scenario.metrics
    if metrics is None:
        nothing = Words("nothing measured", "没有测到数据").html
        empty = f'<td colspan="6" class="soft" style="text-align:left">{nothing}</td>{_chip(scenario)}'
        return f'<tr><td class="wide">{name}{under}</td>{empty}</tr>\n'
    row = f'<tr><td class="wide">{name}{under}</td>{_overview_cells(metrics, scenario.shares)}{_chip(scenario)}</tr>\n'
    groups = (
        f'<tr class="group"><td class="wide">{_group(group).html}</td>{_overview_cells(found, [])}<td></td></tr>\n'
        for group, found in scenario.group_metrics.items()
    )
    return row + "".join(groups)


def _overview_cells(metrics: Metrics, shares: Sequence[CeilingShare]) -> str:
    ceilings = {share.figure: share for share in shares}
    of_token = metrics.worst_token_gap
    note = "" if of_token is None else f"{units.seconds(of_token.maximum)} / token"
    worst = units.seconds(metrics.worst_gap.maximum), note
    return "".join(
        [
            _figure_cell(_typical(metrics.ttft), ceilings.get("ttft")),
            _figure_cell(_typical(metrics.tpot), ceilings.get("tpot")),
            _figure_cell(worst, None),
            _figure_cell((units.rate(metrics.output_tokens_per_s), ""), ceilings.get("output_tokens_per_s")),
            _figure_cell(_typical(metrics.e2e), None),
            f'<td>{metrics.succeeded:,}<span class="under">/ {metrics.attempted:,}</span></td>',
        ]
    )


def scenario_section(scenario: ScenarioResult, samples: Sequence[Sample], number: int, nested: bool = False) -> str:
    """Everything about one scenario: percentiles, charts, other figures, checks."""
    label = f"scenario-{number}"
    heading = "" if nested else f'<h2 id="{label}">{_title(scenario).html}</h2>\n'
    heading += f'<p class="soft">{escape(scenario.name)} · {words.load_name(scenario.load).html}{_size(scenario)}</p>'
    checks = folded_list([Folded((), check) for check in scenario.checks])
    if scenario.metrics is None:
        return heading + checks
    used = _usage(scenario_usage(scenario, samples))
    # Requests of different kinds have no common distribution worth reading.
    tables = "" if scenario.group_metrics else _percentiles(scenario.metrics)
    for group, metrics in scenario.group_metrics.items():
        tables += f"<h3>{_group(group).html}</h3>{_percentiles(metrics)}"
    return "".join([heading, _counts(scenario.metrics), used, tables, _charts(scenario, label), checks])


def sweep_rows(points: Sequence[ScenarioResult]) -> str:
    """A sweep as one table, a row a point."""
    rows = []
    for point in points:
        if point.metrics is None:
            continue
        metrics, goodput = point.metrics, point.metrics.goodput_per_s
        cells = [
            units.rate(metrics.output_tokens_per_s),
            units.rate(metrics.requests_per_s),
            *(_typical(one)[0] for one in (metrics.ttft, metrics.tpot, metrics.worst_gap, metrics.e2e)),
            units.rate(goodput),
        ]
        link = f'<a href="#{escape(point.name)}">{words.load_name(point.load).html}</a>'
        rows.append(f"<tr><td>{link}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    heads = (
        Words("Load", "负载").html,
        term("output", words.OUTPUT),
        Words("Requests/s", "请求/秒").html,
        term("ttft", words.same("TTFT")),
        term("tpot", words.same("TPOT")),
        term("worst", words.WORST_GAP),
        term("e2e", words.E2E),
        term("goodput", words.GOODPUT),
    )
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def definitions() -> str:
    items = "".join(f'<dt id="def-{key}">{name.html}</dt><dd>{text.html}</dd>' for key, name, text in words.DEFINITIONS)
    return f"<h2>{Words('What the figures mean', '指标定义').html}</h2>\n<dl>{items}</dl>\n"


def distribution_cells(one: Distribution) -> list[str]:
    """Mean, smallest, P50, P90, P99 and largest, with a dash for what the sample does not carry."""
    return [units.seconds(x) for x in (one.mean, one.minimum, one.p50, one.p90, one.p99, one.maximum)]


def _title(scenario: ScenarioResult) -> Words:
    title = scenario.title or scenario.scenario
    return Words(title, scenario.title_zh or title)


def _size(scenario: ScenarioResult) -> str:
    """What its requests were, where they were all about the same."""
    records = figures.measured(scenario)
    prompts = [r.prompt_tokens for r in records if r.prompt_tokens is not None]
    outputs = [r.completion_tokens for r in records if r.completion_tokens is not None]
    if not prompts or not outputs:
        return ""
    asked, said = _range(prompts), _range(outputs)
    return " · " + Words(f"{asked} tokens in, {said} out", f"输入 {asked} token，输出 {said} token").html


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _group(group: str) -> Words:
    known = {
        "background": Words("The streams that were decoding", "正在解码的各路"),
        "arrival": Words("The long prompt that arrived", "途中到来的长提示词"),
    }
    return known.get(group, words.same(group))


def _typical(one: Distribution) -> tuple[str, str]:
    """The median, or the mean with a word about it where the sample carries no median."""
    if one.p50 is not None:
        return units.seconds(one.p50), ""
    if one.mean is None:
        return units.NOTHING, ""
    few = Words("one value", "仅一个值") if one.count == 1 else Words(f"mean of {one.count}", f"{one.count} 个值的均值")
    return units.seconds(one.mean), few.html


def _figure_cell(value: tuple[str, str], share: CeilingShare | None) -> str:
    text, note = value
    under = f'<span class="under">{note}</span>' if note else ""
    if share is not None:
        width = min(max(share.share, 0.0), 1.0) * 100
        over = " over" if share.share > 1 else ""
        best = _value(share.figure, share.ceiling)
        under += f'<span class="meter{over}"><i style="width:{width:.1f}%"></i></span>'
        under += f'<span class="under">{units.percent(share.share)} · {Words("ceiling", "上限").html} {best}</span>'
    return f'<td class="figure">{escape(text)}{under}</td>'


def _value(figure: str, value: float) -> str:
    return f"{units.rate(value)} tok/s" if figure == "output_tokens_per_s" else units.seconds(value)


def _chip(scenario: ScenarioResult) -> str:
    if not scenario.checks:
        return f'<td class="soft">{units.NOTHING}</td>'
    level = level_of(scenario.checks)
    return f'<td><span class="chip {level}">{_LEVELS[level].html}</span></td>'


def _counts(metrics: Metrics) -> str:
    """Throughput and totals, as a line of facts."""
    facts: list[tuple[str, str]] = [
        (term("output", words.OUTPUT), units.rate(metrics.output_tokens_per_s)),
        (words.TOTAL.html, units.rate(metrics.total_tokens_per_s)),
        (Words("Requests/s", "请求/秒").html, units.rate(metrics.requests_per_s)),
        (Words("Decode speed of one user", "单用户解码速度").html, f"{units.rate(metrics.decode_tokens_per_s)} tok/s"),
        (Words("Prompt tokens", "提示词 token").html, units.count(metrics.prompt_tokens)),
        (term("cached", Words("cached", "缓存命中")), units.count(metrics.cached_tokens)),
        (Words("Output tokens", "输出 token").html, units.count(metrics.output_tokens)),
        (Words("Most in flight", "最大并发").html, units.count(metrics.max_in_flight)),
        (Words("Failed", "失败").html, units.count(metrics.failed)),
    ]
    if metrics.slo:
        limits = ", ".join(f"{name} {units.seconds(value)}" for name, value in metrics.slo.items())
        share = f"{units.rate(metrics.goodput_per_s)}/s, {units.percent(metrics.goodput_share)} ({limits})"
        facts.append((term("goodput", words.GOODPUT), share))
    items = "".join(f"<li>{name} <b>{escape(value)}</b></li>" for name, value in facts)
    return f'<ul class="facts">{items}</ul>'


def _usage(used: Usage) -> str:
    """What the scenario took of the machine; nothing where nothing was read."""
    named: list[tuple[Words, float | str | None]] = [
        (Words("GPU busy", "GPU 忙碌"), used.gpu_percent and f"{used.gpu_percent:.0f} %"),
        (Words("GPU memory in use", "显存占用"), used.vram_bytes and units.size(used.vram_bytes)),
        (Words("Power", "功率"), used.power_w and f"{used.power_w:.0f} W"),
        (Words("Energy a token", "每 token 能耗"), used.energy_j_per_token and f"{used.energy_j_per_token:.3g} J"),
        (Words("Core clock", "核心频率"), used.sm_clock_mhz and f"{used.sm_clock_mhz:.0f} MHz"),
        (Words("Server's CPU", "服务 CPU"), used.server_cores and f"{used.server_cores:.2f} cores"),
        (Words("Server's memory", "服务内存"), used.server_rss_bytes and units.size(used.server_rss_bytes)),
        (Words("Client's CPU", "客户端 CPU"), used.client_cores and f"{used.client_cores:.2f} cores"),
    ]
    items = "".join(f"<li>{name.html} <b>{escape(str(value))}</b></li>" for name, value in named if value)
    return f'<ul class="facts">{items}</ul>' if items else ""


def _percentiles(metrics: Metrics) -> str:
    named: list[tuple[str, Words, Distribution | None]] = [
        ("ttft", words.TTFT, metrics.ttft),
        ("scheduled", words.TTFT_SCHEDULED, metrics.ttft_scheduled),
        ("tpot", words.TPOT, metrics.tpot),
        ("gap", words.GAP, metrics.gaps),
        ("worst", words.WORST_GAP, metrics.worst_gap),
        ("token-gap", words.WORST_TOKEN_GAP, metrics.worst_token_gap),
        ("e2e", words.E2E, metrics.e2e),
        ("scheduled", words.E2E_SCHEDULED, metrics.e2e_scheduled),
        ("scheduled", words.SEND_LAG, metrics.send_lag),
    ]
    rows = "".join(
        f"<tr><td>{term(key, name)}</td><td>{one.count:,}</td>"
        f"{''.join(f'<td>{cell}</td>' for cell in distribution_cells(one))}</tr>"
        for key, name, one in named
        if one is not None and one.count
    )
    if metrics.worst_gap.count and metrics.worst_token_gap is None:
        absent = f'<td colspan="7" class="soft" style="text-align:left">{words.NOT_COUNTED.html}</td>'
        rows += f"<tr><td>{term('token-gap', words.WORST_TOKEN_GAP)}</td>{absent}</tr>"
    heads = (
        words.same(""),
        Words("Values", "样本数"),
        Words("Mean", "均值"),
        Words("Least", "最小"),
        words.same("P50"),
        words.same("P90"),
        words.same("P99"),
        Words("Most", "最大"),
    )
    head = "".join(f"<th>{name.html}</th>" for name in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n'


def _charts(scenario: ScenarioResult, label: str) -> str:
    records = figures.measured(scenario)
    if not records:
        return ""
    groups = sorted({record.group for record in records})

    def split(values_of: figures.Values) -> list[tuple[Words, list[float]]]:
        return [
            (_group(group), [value for r in records if r.group == group for value in values_of(r)]) for group in groups
        ]

    parts = []
    several, metrics = len(groups) > 1, scenario.metrics
    for key, name, values_of, one in (
        ("ttft", words.TTFT, figures.ttft_values, metrics and metrics.ttft),
        ("tpot", words.TPOT, figures.tpot_values, metrics and metrics.tpot),
        ("gap", words.GAP, gaps, metrics and metrics.gaps),
    ):
        named = split(values_of)
        if sum(len(values) for _, values in named) > 1:
            median = one.p50 if one and not several else None
            svg = figures.distribution(named, name, f"{label}-{key}", log=several or key == "gap", median=median)
            parts.append(figure(f"{label}-{key}", name, svg))
    svg, left_out = figures.request_timeline(scenario, f"{label}-time")
    note = Words(f"{left_out:,} requests are left out", f"省略 {left_out:,} 个请求").html if left_out else ""
    caption = Words("Every request, from send to end", "每个请求，从发送到结束")
    parts.append(figure(f"{label}-time", caption, svg, note=note))
    return f'<div class="charts">{"".join(parts)}</div>\n'
