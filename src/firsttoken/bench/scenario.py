"""What a scenario is: which requests, offered how, and what must hold for its figures to count. Plain data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from firsttoken.bench.records import Cache, LoadSpec

Endpoint = Literal["chat", "completions", "auto"]

UNIQUE = "{unique}"
"""In a text of `FixedDialogues`: replaced by 12 letters drawn anew for each dialogue, so that prefixes differ."""


class Turn(msgspec.Struct, kw_only=True, frozen=True):
    """One request. A chat turn adds `messages` to the history of its dialogue; a completion has a `prompt`."""

    messages: list[dict[str, str]] = []
    prompt: str | list[int] | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False  # sent where the server knows it; then exactly max_tokens are due
    prompt_tokens: int | None = None  # intended, template included; None where unknown
    reply: str | None = None  # scripted assistant text for the history; None keeps the model's own answer


class Dialogue(msgspec.Struct, kw_only=True, frozen=True):
    """Turns played one after another by one user; most have one turn."""

    turns: list[Turn]
    group: str = ""


class RandomPrompts(msgspec.Struct, kw_only=True, frozen=True, tag="random"):
    """One-turn dialogues of exact length. Token ids on /v1/completions where the server takes them, else text."""

    input_tokens: int
    output_tokens: int
    shared_prefix_tokens: int = 0  # the same in every prompt: reuse is then the point
    group: str = ""


class FixedDialogues(msgspec.Struct, kw_only=True, frozen=True, tag="fixed"):
    """Given dialogues in order, from the start again when they run out."""

    dialogues: list[Dialogue]


class Parts(msgspec.Struct, kw_only=True, frozen=True, tag="parts"):
    """The first `counts[0]` dialogues of workloads[0], the next `counts[1]` of workloads[1], and so on, then again."""

    counts: list[int]
    workloads: list[RandomPrompts | FixedDialogues]


Workload = RandomPrompts | FixedDialogues | Parts


class Scenario(msgspec.Struct, kw_only=True, frozen=True):
    """A named workload under one load, or under several (a sweep)."""

    name: str
    title: str
    title_zh: str = ""
    workload: Workload
    loads: list[LoadSpec]
    sweep: str | None = None  # "concurrency" or "rate"
    cache: Cache = "any"  # what the server's prefix cache should have held
    endpoint: Endpoint = "auto"  # of random prompts; fixed dialogues go where their turns belong
    sampling: dict[str, float] = {}  # request fields such as temperature; left out: the server's defaults
    extra_body: dict[str, Any] = {}  # further fields of every request
