"""Gains with their intervals as inline SVG: a row a value, the margin as a band, the prediction as a ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from firsttoken.bench.words import Words
from firsttoken.tune.verdict_words import percent

_WIDTH, _LEFT, _RIGHT, _STEP, _TOP, _BOTTOM = 820, 250, 70, 26, 14, 46
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_WIDEST = 3.0  # times the largest gain: an interval that is wider is cut off


@dataclass(frozen=True, slots=True)
class Line:
    """One row. Shares."""

    name: str
    gain: float
    low: float | None
    high: float | None
    predicted: float | None
    colour: int


def interval_chart(lines: Sequence[Line], margin: float, label: str) -> str:
    """`label` is the id of the figure's caption."""
    largest = max([abs(value) for line in lines for value in (line.gain, line.predicted or 0.0)] + [2 * margin])
    reach = _WIDEST * largest
    ends = [line.low for line in lines if line.low is not None] + [line.high for line in lines if line.high is not None]
    low = max(min([*ends, -2 * margin, *(line.gain for line in lines)]), -reach) * 1.05
    high = min(max([*ends, 2 * margin, *(line.gain for line in lines), largest]), reach) * 1.05
    width = _WIDTH - _LEFT - _RIGHT
    height = _TOP + _STEP * len(lines) + _BOTTOM
    bottom = height - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + width * (min(max(value, low), high) - low) / (high - low)

    body = [
        f'<rect x="{x(-margin):.1f}" y="{_TOP}" width="{x(margin) - x(-margin):.1f}" height="{bottom - _TOP}" '
        'style="fill: var(--grid)"/>'
    ]
    step = next((one for one in _STEPS if (high - low) / one <= 8), _STEPS[-1])
    for at in range(int(low / step), int(high / step) + 1):
        body.append(
            f'<line class="{"axis" if at == 0 else "grid"}" x1="{x(at * step):.1f}" x2="{x(at * step):.1f}" '
            f'y1="{_TOP}" y2="{bottom}"/>'
            f'<text class="tick" x="{x(at * step):.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{percent(at * step)}</text>"
        )
    for language, text in (("en", "gain, with its interval"), ("zh", "提升及其区间")):
        body.append(
            f'<text class="label {language}" x="{_LEFT + width / 2:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{text}</text>"
        )
    body += [_row(line, _TOP + _STEP * (place + 0.5), x, low, high) for place, line in enumerate(lines)]
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{escape(label)}">{"".join(body)}</svg>'


def _row(line: Line, y: float, x: Callable[[float], float], low: float, high: float) -> str:
    start, end = line.low if line.low is not None else low, line.high if line.high is not None else high
    name = line.name if len(line.name) <= 36 else line.name[:35] + "…"
    parts = [
        f'<text class="name" x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>',
        f'<line class="l{line.colour}" style="stroke-width: 2" x1="{x(start):.1f}" x2="{x(end):.1f}" '
        f'y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<circle class="f{line.colour}" cx="{x(line.gain):.1f}" cy="{y:.1f}" r="4.5"/>',
        f'<text class="value" x="{_WIDTH - _RIGHT + 10}" y="{y + 4:.1f}">{percent(line.gain)}</text>',
    ]
    if line.predicted is not None:
        parts.append(f'<circle class="dot" cx="{x(line.predicted):.1f}" cy="{y:.1f}" r="4.5" style="fill: none"/>')
    return f"<g><title>{escape(line.name)}</title>{''.join(parts)}</g>"


LEGEND = Words(
    "Dot and line: measured gain and its interval. Ring: predicted. Grey band: too small to matter.",
    "圆点和线段：实测提升及区间。圆圈：预测值。灰带：小到可以忽略。",
)
