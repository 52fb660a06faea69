"""A session's answer in one sentence, English and Chinese."""

from __future__ import annotations

from firsttoken.bench.words import Words, same
from firsttoken.tune.objective import FIGURES, OBJECTIVES
from firsttoken.tune.records import Gain, Tuned
from firsttoken.tune.stats import MUCH
from firsttoken.tune.unrest import unrest


def percent(gain: float) -> str:
    """+3.1 %, and 0 without a sign."""
    return "0 %" if abs(gain) < 0.0005 else f"{gain:+.1%}".replace("%", " %")


def interval(found: Gain) -> str:
    low = percent(found.low) if found.low is not None else "–"
    high = percent(found.high) if found.high is not None else "–"
    return f"{low} … {high}"


def objective_name(tuned: Tuned) -> Words:
    return next(
        (FIGURES[one].name for one in OBJECTIVES if one == tuned.objective), Words(tuned.objective, tuned.objective)
    )


def answer(tuned: Tuned) -> Words:
    """What to do, and whether the machine was quiet enough to say it."""
    advice, doubt = _advice(tuned), unrest(tuned)
    return Words(f"{advice.en.strip()} {doubt.en}".strip(), f"{advice.zh}{doubt.zh}")


def _advice(tuned: Tuned) -> Words:
    if tuned.changed and tuned.fresh is not None:
        what, gain = ", ".join(tuned.changed), percent(tuned.fresh.gain)
        name, ends = objective_name(tuned), interval(tuned.fresh)
        return Words(
            f"Change {what}: {name.en}, gains {gain} on fresh runs (95 %: {ends}). {tuned.why}".strip(),
            f"请修改 {what}：在全新的运行中，{name.zh}改善 {gain}（95 % 区间：{ends}）。{tuned.why_zh}",
        )
    noise = percent(tuned.noise).lstrip("+")
    left = f"{max(tuned.best_left, 0):.1%}".replace("%", " %")
    if any(row.verdict is not None for row in tuned.rows):
        if tuned.best_left > MUCH or not any(row.measured for row in tuned.rows):
            room = (
                Words(f" of up to {left} in a value", f"（单个取值最多 {left}）") if tuned.best_left < 1 else same("")
            )
            return Words(
                f"Not decided: this session leaves room for a gain{room.en}. {tuned.why} Give a longer --budget, or a "
                f"calmer machine: two launches of the same settings differed by {noise} here.",
                f"尚无定论：这次会话还不能排除明显的提升{room.zh}。{tuned.why_zh}"
                f"请给更长的 --budget，或换更安静的机器：同样的设置启动两次，结果相差 {noise}。",
            )
        most = (
            Words(f" At most {left} may be left in any one value.", f"任何单个取值最多还可能有 {left} 的提升。")
            if tuned.best_left > 0
            else same("")
        )
        return Words(
            f"Keep your settings: nothing that was tried is shown to be better.{most.en} {tuned.why}",
            f"保持现有设置：没有哪个尝试过的取值被证明更好。{most.zh}{tuned.why_zh}",
        )
    return Words("Nothing could be tried here.", "这里没有可以尝试的设置。")
