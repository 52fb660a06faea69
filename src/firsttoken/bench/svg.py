"""Charts as inline SVG, drawn by hand: lines, steps, dots and bars on linear or logarithmic axes.

Colours are CSS variables of the page, so a chart follows its light or dark theme; text is given in two languages, of
which the page shows one. Everything that comes from outside is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from firsttoken.bench.words import Words

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 36, 46
_COLOURS = 6


def _plain(value: float) -> str:
    return f"{value:,.10g}"


@dataclass(frozen=True, slots=True)
class Axis:
    """A value's range on the page. `label` carries the unit."""

    label: Words
    low: float
    high: float
    log: bool = False  # then low is above zero
    format: Callable[[float], str] = _plain
    at: Sequence[float] = ()  # ticks that are wanted, instead of round numbers

    def place(self, value: float) -> float:
        """From 0 at `low` to 1 at `high`."""
        if self.log:
            span = math.log(self.high / self.low)
            return math.log(max(value, self.low) / self.low) / span
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        if self.at:
            return list(self.at[:: math.ceil(len(self.at) / (most + 2))])
        return _log_ticks(self.low, self.high, most) if self.log else _linear_ticks(self.low, self.high, most)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour, joined by a line, by steps, or not at all."""

    name: Words
    points: Sequence[tuple[float, float]]
    colour: int = 0
    steps: bool = False
    dots: bool = False
    line: bool = True
    tips: Sequence[str] = ()  # one a point, shown under the pointer


@dataclass(frozen=True, slots=True)
class Span:
    """A bar from start to end in one row of a timeline, or a band over the whole height."""

    start: float
    end: float
    row: float = 0.0
    colour: int = 0
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a few words beside it, such as a percentile, or above it, such as where something began."""

    at: float
    text: str
    above: bool = False


def linear_axis(
    label: Words, values: Sequence[float], format: Callable[[float], str] = _plain, *, from_zero: bool = True
) -> Axis:
    """From zero, or from a round number below every value, to a round number above every value."""
    low, high = (0.0 if from_zero else min(values, default=0.0)), max(values, default=1.0)
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _step(high - low, 6)
    return Axis(label, step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), format=format)


def log_axis(
    label: Words, values: Sequence[float], format: Callable[[float], str] = _plain, at: Sequence[float] = ()
) -> Axis:
    """Around every positive value, at least half a decade wide."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive) / 1.08, max(positive) * 1.08
    if high / low < 3:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(3), middle * math.sqrt(3)
    return Axis(label, low, high, log=True, format=format, at=at)


def apart(marks: Sequence[Mark], x: Axis) -> list[Mark]:
    """The marks with only those texts that do not run into the next one, or off the page."""
    width = WIDTH - _LEFT - _RIGHT
    places = [width * x.place(mark.at) for mark in marks]
    ends = [*places, width + _RIGHT][1:]
    return [
        mark if end - place > 6.4 * len(mark.text) else Mark(mark.at, "", mark.above)
        for mark, place, end in zip(marks, places, ends, strict=True)
    ]


def chart(
    series: Sequence[Series], x: Axis, y: Axis, *, marks: Sequence[Mark] = (), label: str, height: int = HEIGHT
) -> str:
    """Lines over two axes, under a legend where there is more than one. `label` is the id of the figure's caption."""
    frame = _Frame(x, y, height)
    body = [frame.grid(), *(frame.mark(mark) for mark in marks), *(frame.series(one) for one in series)]
    named = _legend([(one.name, one.colour) for one in series]) if len(series) > 1 else ""
    return named + _svg("".join(body), label, height)


def timeline(
    spans: Sequence[Span],
    dots: Sequence[tuple[float, float, str]],
    legend: Sequence[tuple[Words, int]],
    x: Axis,
    rows: int,
    y_label: Words,
    label: str,
) -> str:
    """One row a request: bars from start to end, and dots (seconds, row, tip) upon them."""
    height = min(_TOP + _BOTTOM + max(rows * 14, 80), 460)
    y = Axis(y_label, rows, 0.0, format=lambda value: f"{value:,.0f}")
    frame = _Frame(x, y, height)
    thick = max(min(frame.height / max(rows, 1) * 0.7, 12), 1.0)
    body = [frame.grid(horizontal=False)]
    for span in spans:
        left, right, top = frame.x(span.start), frame.x(span.end), frame.y(span.row + 0.5) - thick / 2
        body.append(
            f'<rect class="f{span.colour}" x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.8):.1f}" '
            f'height="{thick:.1f}" rx="{min(thick / 3, 2):.1f}">{_tip(span.tip)}</rect>'
        )
    for at, row, tip in dots if thick > 5 else ():
        body.append(
            f'<circle class="dot" cx="{frame.x(at):.1f}" cy="{frame.y(row + 0.5):.1f}" r="{thick / 2.6:.1f}">'
            f"{_tip(tip)}</circle>"
        )
    return _legend(legend) + _svg("".join(body), label, height)


def bars(rows: Sequence[tuple[Words, float, str, int]], x: Axis, label: str, mark: float | None = None) -> str:
    """Horizontal bars: (name, value, text at its end, colour), with a line at `mark`."""
    step, left, top = 26, 236, 14
    height = top + step * len(rows) + _BOTTOM
    width = WIDTH - left - 88
    body = []
    for tick in x.ticks(6):
        at = left + width * x.place(tick)
        body.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{height - _BOTTOM + 2}"/>')
        body.append(_text(at, height - _BOTTOM + 18, x.format(tick), "middle"))
    body.append(_words(left + width / 2, height - 8, x.label, "middle", "label"))
    for number, (name, value, text, colour) in enumerate(rows):
        y = top + step * number
        end = width * min(max(x.place(value), 0), 1)
        short = Words(_short(name.en), _short(name.zh))
        body.append(f"<g>{_tip(f'{name.en}: {text}')}{_words(left - 10, y + 17, short, 'end', 'name')}")
        body.append(
            f'<rect class="f{colour}" x="{left}" y="{y + 6}" width="{max(end, 1):.1f}" height="14" rx="2"/>'
            f"{_text(left + end + 7, y + 17, text, 'start', 'value')}</g>"
        )
    if mark is not None:
        at = left + width * x.place(mark)
        body.append(f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 6}" y2="{height - _BOTTOM + 2}"/>')
    return _svg("".join(body), label, height)


class _Frame:
    """The plotting area of a chart."""

    def __init__(self, x: Axis, y: Axis, height: int) -> None:
        self._x, self._y = x, y
        self.width, self.height = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def x(self, value: float) -> float:
        return _LEFT + self.width * self._x.place(value)

    def y(self, value: float) -> float:
        return _TOP + self.height * (1 - self._y.place(value))

    def grid(self, horizontal: bool = True) -> str:
        bottom, right = _TOP + self.height, _LEFT + self.width
        parts = []
        for tick in self._x.ticks(7):
            at = self.x(tick)
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(_text(at, bottom + 17, self._x.format(tick), "middle"))
        for tick in self._y.ticks(5):
            at = self.y(tick)
            if horizontal:
                parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
                parts.append(_text(_LEFT - 8, at + 4, self._y.format(tick), "end"))
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        parts.append(_words(_LEFT + self.width / 2, bottom + 38, self._x.label, "middle", "label"))
        parts.append(_words(_LEFT - 52, 13, self._y.label, "start", "label"))
        return "".join(parts)

    def series(self, series: Series) -> str:
        places = [(self.x(x), self.y(y)) for x, y in series.points]
        parts = []
        if series.line and places:
            path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
            for x, y in places[1:]:
                path += f"H{x:.1f}V{y:.1f}" if series.steps else f"L{x:.1f} {y:.1f}"
            parts.append(f'<path class="l{series.colour % _COLOURS}" d="{path}"/>')
        if series.dots:
            for number, (x, y) in enumerate(places):
                tip = _tip(series.tips[number]) if number < len(series.tips) else ""
                parts.append(f'<circle class="f{series.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.6">{tip}</circle>')
        return "".join(parts)

    def mark(self, mark: Mark) -> str:
        at = self.x(mark.at)
        line = f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_TOP + self.height}"/>'
        if mark.above:
            return line + _text(at, _TOP - 5, mark.text, "start")
        near_right = at > _LEFT + self.width * 0.8
        # Low, where a cumulative curve leaves room to the right of its own median.
        return line + _text(
            at + (-5 if near_right else 5), _TOP + self.height - 8, mark.text, "end" if near_right else "start"
        )


def _legend(entries: Sequence[tuple[Words, int]]) -> str:
    """Above the drawing and as HTML, so that it wraps."""
    items = "".join(f'<li><i class="b{colour % _COLOURS}"></i>{words.html}</li>' for words, colour in entries)
    return f'<ul class="legend">{items}</ul>'


def _short(text: str) -> str:
    return text if len(text) <= 34 else text[:33] + "…"


def _svg(body: str, label: str, height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{escape(label)}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _words(x: float, y: float, words: Words, anchor: str, kind: str) -> str:
    if words.en == words.zh:
        return _text(x, y, words.en, anchor, kind)
    return _text(x, y, words.en, anchor, f"{kind} en") + _text(x, y, words.zh, anchor, f"{kind} zh")


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within the range."""
    if high < low:
        low, high = high, low
    span = high - low
    if span <= 0:
        return [low]
    step = _step(span, most)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5, 10, … that cuts the span into at most that many parts."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 of every decade, or fewer where that is too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**decade for decade in decades for factor in factors]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            return ticks
    every = math.ceil(len(ticks) / most)
    return ticks[::every]
