"""What disturbed a session and what was done about it, in English and Chinese."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape

from firsttoken.bench.words import Words, same
from firsttoken.tune.records import Tuned
from firsttoken.tune.repeats import SHARE, TRIES, Fate

MUCH = 0.1
"""Share of the runs: from so many that stay disturbed on the answer says that the machine was not quiet."""

_SHARE = f"{SHARE:.0%}".replace("%", " %")
_BY = {
    "cpu": Words("other programs on the CPU", "其他程序占用 CPU"),
    "gpu": Words("other programs on the GPU", "其他程序占用 GPU"),
    "clocks": Words("a card that slowed itself down", "显卡自行降频"),
}
_FATES: dict[Fate, Words] = {
    "again": Words("measured again", "已重新测量"),
    "tried enough": Words(f"stayed after {TRIES} measurements", f"测量 {TRIES} 次后保留"),
    "never quiet": Words("stayed, as the machine did not become quiet", "因机器一直没有安静下来而保留"),
    "no time": Words("stayed, as no time was left for repeats", "因没有时间重复测量而保留"),
}


def unrest(tuned: Tuned) -> Words:
    """For the answer: that the machine was not quiet, where that is so; else nothing."""
    stayed = [one for one in tuned.disturbed if one.fate != "again"]
    of = tuned.runs - 1 - (len(tuned.disturbed) - len(stayed))
    if len(stayed) < MUCH * max(of, 1):
        return same("")
    by = _by(kind for one in stayed for kind in {cause.kind for cause in one.what})
    return Words(
        f"The machine was not quiet: {len(stayed)} of {of} runs stayed disturbed ({by.en}). Stop what else "
        "uses it and tune again.",
        f"机器并不安静：{of} 次运行中有 {len(stayed)} 次一直受到干扰（{by.zh}）。请停掉其他工作后重新调优。",
    )


def disturbed_section(tuned: Tuned) -> str:
    """The page's part on disturbed runs and on the client; empty where there is nothing to say."""
    parts = []
    if tuned.disturbed:
        parts.append(f"<p>{disturbed_sentence(tuned).html}</p>\n{_details(tuned)}")
    if tuned.client_limited:
        parts.append(f"<p>{_client(tuned.client_limited).html}</p>\n")
    heading = Words("Disturbed runs", "受干扰的运行").html
    return f"<h2>{heading}</h2>\n{''.join(parts)}" if parts else ""


def disturbed_sentence(tuned: Tuned) -> Words:
    """How many, by what, and what was done."""
    found = tuned.disturbed
    by = _by(kind for one in found for kind in {cause.kind for cause in one.what})
    fates = Counter(one.fate for one in found)
    en = "; ".join(f"{count} {_FATES[fate].en}" for fate, count in fates.items())
    zh = "；".join(f"{count} 次{_FATES[fate].zh}" for fate, count in fates.items())
    unlike = (
        Words(
            f" Quiet and disturbed runs of one pair or block were not compared ({tuned.unlike}).",
            f"同一对（组）中安静的与受干扰的运行不作比较（{tuned.unlike} 处）。",
        )
        if tuned.unlike
        else same("")
    )
    return Words(
        f"{len(found)} of {tuned.runs - 1} measurements were disturbed: {by.en}. What was done: {en}.{unlike.en} A run "
        f"is measured {TRIES} times at most, and repeats take {_SHARE} of the time at most. What was measured plays no "
        "part in it: only signs that do not depend on a run's figure have it measured again.",
        f"{tuned.runs - 1} 次测量中有 {len(found)} 次受到干扰：{by.zh}。处理：{zh}。{unlike.zh}"
        f"一次运行最多测量 {TRIES} 次，"
        f"重复测量最多占用 {_SHARE} 的时间。测得的数值不影响这一决定：只有与数值无关的迹象才会导致重新测量。",
    )


def _by(kinds: Iterable[str]) -> Words:
    counts = Counter(kinds)
    return Words(
        ", ".join(f"{_BY[kind].en} ({count})" for kind, count in counts.items()),
        "，".join(f"{_BY[kind].zh}（{count} 次）" for kind, count in counts.items()),
    )


def _client(runs: int) -> Words:
    return Words(
        f"In {runs} runs the benchmark's own client was the limit, so their figures are lower bounds of what the "
        "server can do. They count: a faster server fills the client more, and to leave such runs out would choose by "
        "the figure. Give the client more cores.",
        f"有 {runs} 次运行中，瓶颈是测试客户端自身，因此这些数字只是服务能力的下限。它们仍然计入：服务越快，"
        "客户端就越满，排除这些运行等于按数值挑选。请给客户端更多的核。",
    )


def _details(tuned: Tuned) -> str:
    heads = (Words("Run", "运行"), Words("Settings", "设置"), Words("What", "干扰"), Words("Done", "处理"))
    head = "".join(f"<th>{name.html}</th>" for name in heads)
    rows = "".join(
        f'<tr><td>{one.number}</td><td class="wide">{escape(one.label)}</td><td class="wide">'
        f"{Words('; '.join(c.text for c in one.what), '；'.join(c.text_zh for c in one.what)).html}</td>"
        f'<td class="wide">{_FATES[one.fate].html}</td></tr>\n'
        for one in tuned.disturbed
    )
    title = Words("Each of them", "逐次列出").html
    table = f'<table class="small"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<details><summary>{title}</summary><div class="scroll">{table}</div></details>\n'
