"""Whether a faster server still gives the same answers: `firsttoken bench quality`, and what it must reach."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from firsttoken.bench.launch import LaunchedServer
from firsttoken.bench.words import Words
from firsttoken.tune.arms import Settings
from firsttoken.tune.guarded import guarded
from firsttoken.tune.space import Space


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """A config's answers against the baseline's."""

    passed: bool
    text: str  # one sentence: what was found, or why nothing could be
    text_zh: str = ""
    seconds: float = 0.0
    figures: dict[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What answers must reach, beyond what the baseline differs from itself by in other company."""

    kl: float = 0.05  # nats a token
    same_best: float = 0.95  # share of positions at which both find the same token likeliest
    shared: float = (
        0.5  # share of a greedy answer before the first other token, of what the baseline shares with itself
    )


# What is read of the report of `bench quality`; its other fields do not matter here.


class _Distance(msgspec.Struct):
    way: Literal["prefill", "decode"]
    kind: str
    kl: float
    same_best: float


class _Agreement(msgspec.Struct):
    shared: float


class _Needle(msgspec.Struct):
    tokens: int
    asked: int
    found: int


class _Side(msgspec.Struct):
    needles: list[_Needle]


class Report(msgspec.Struct):
    """Of B against A."""

    a: _Side
    b: _Side
    floor: list[_Distance]
    distance: list[_Distance]
    floor_agreement: _Agreement
    agreement: _Agreement


def judge(report: Report, limits: Limits | None = None) -> Quality:
    """The verdict on a report."""
    limits = limits or Limits()
    floor = max((one.kl for one in report.floor if one.kind == "all"), default=0.0)
    kl = max(one.kl for one in report.distance if one.kind == "all")
    same = min(one.same_best for one in report.distance if one.kind == "all")
    own = report.floor_agreement.shared
    needles = sum(one.found for one in report.b.needles), sum(one.found for one in report.a.needles)
    lacks = [
        text
        for text, bad in (
            (Words(f"KL above {limits.kl:g} nats", f"KL 超过 {limits.kl:g} nat"), kl - floor > limits.kl),
            (
                Words(f"top-1 agreement below {limits.same_best:.0%}", f"top-1 一致率低于 {limits.same_best:.0%}"),
                same < limits.same_best,
            ),
            (
                Words(
                    f"greedy answers part sooner than {limits.shared:.0%} of the way",
                    f"贪心回答在 {limits.shared:.0%} 的长度之前就已分开",
                ),
                report.agreement.shared < limits.shared * own,
            ),
            (
                Words("fewer needles found than by the baseline", "找到的“针”比基线少"),
                needles[0] < needles[1],
            ),
        )
        if bad
    ]
    found = Words(
        f"KL {kl:.2g} nats a token (floor {floor:.2g}), top-1 agreement {same:.1%}, greedy answers equal for "
        f"{report.agreement.shared:.0%} of their length (floor {own:.0%}), {needles[0]} needles "
        f"found (baseline {needles[1]})",
        f"每 token 的 KL 为 {kl:.2g} nat（底噪 {floor:.2g}），top-1 一致率 {same:.1%}，贪心回答有 "
        f"{report.agreement.shared:.0%} 的长度一致（底噪 {own:.0%}），找到 {needles[0]} 根针（基线 {needles[1]}）",
    )
    return Quality(
        passed=not lacks,
        text="; ".join([found.en, *(lack.en for lack in lacks)]),
        text_zh="；".join([found.zh, *(lack.zh for lack in lacks)]),
        figures={
            "kl": kl,
            "kl_floor": floor,
            "same_best": same,
            "shared": report.agreement.shared,
            "shared_floor": own,
        },
    )


class QualityGate:
    """Runs `bench quality` as a process of its own, so that no engine is loaded here."""

    def __init__(
        self,
        space: Space,
        model: str,
        always: str,
        folder: Path,
        *,
        context: Callable[[], int],
        timeout: float = 1800.0,
        program: str = f"{shlex.quote(sys.executable)} -m firsttoken",
    ) -> None:
        """`context`: tokens of the work's longest request, at which a needle is looked for."""
        self._space, self._model, self._always, self._folder = space, model, always, folder
        self._context, self._timeout, self._program = context, timeout, program

    def __call__(self, baseline: Settings, settings: Settings) -> Quality:
        started = time.monotonic()
        out = self._folder / "quality.json"
        out.unlink(missing_ok=True)
        sides = [f"{shlex.quote(self._model)} {self._flags(one)}".strip() for one in (baseline, settings)]
        lengths = sorted({512, max(self._context(), 256)})
        words = ["bench", "quality", "--a", sides[0], "--b", sides[1], "--out", str(out)]
        words += ["--needle-lengths", ",".join(map(str, lengths))]
        command = guarded(f"{self._program} {shlex.join(words)}", self._folder / "server.pid")
        log = self._folder / "quality.log"
        failure = _run(command, log, self._timeout)
        if not failure:
            try:
                found = judge(msgspec.json.decode(out.read_bytes(), type=Report))
                return msgspec.structs.replace(found, seconds=time.monotonic() - started)
            except (OSError, msgspec.MsgspecError, ValueError) as error:
                failure = f"its report cannot be read ({error})"
        return Quality(
            passed=False,
            text=f"not shown: {failure}",
            text_zh=f"未能证明：{failure}",
            seconds=time.monotonic() - started,
        )

    def _flags(self, settings: Settings) -> str:
        return self._space.flags(settings, self._always)


def _run(command: str, log: Path, timeout: float) -> str:
    """Runs it to its end in a process group; why it failed, or nothing."""
    with LaunchedServer(command, log) as process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return f"it took longer than {timeout:g} s"
        return f"it ended with code {code}; its log's last line: {process.last_line()}" if code else ""
