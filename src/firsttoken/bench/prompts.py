"""The dialogues of a workload, each made from the run's seed and its own number: the same number, the same dialogue."""

from __future__ import annotations

import random
import string

import msgspec

from firsttoken.bench.prompt_form import PromptForm, text_of
from firsttoken.bench.scenario import UNIQUE, Dialogue, FixedDialogues, Parts, RandomPrompts, Turn, Workload
from firsttoken.errors import ConfigError

_MANY = 1 << 40
_MOST = 20_000  # given dialogues that a load without a number of requests may take


class PromptSource:
    """Makes dialogue number n of a workload."""

    def __init__(self, workload: Workload, form: PromptForm | None, seed: str) -> None:
        """`form` may be None where the workload holds no random prompts. `seed` names run and scenario."""
        self._workload = workload
        self._form = form
        self._seed = seed

    def warm_up_first(self, count: int) -> int:
        """Where warm-up's `count` numbers begin: far from the measured ones.

        Given dialogues are taken from the end of their list, so that the measured ones from its beginning are new to
        the server's prefix cache where the list is long enough; of parts the last ones are taken too, so that a long
        prompt at their end is warmed up.
        """
        end = _MANY * cycle_length(self._workload)
        return end if isinstance(self._workload, RandomPrompts) else end - count

    def dialogue(self, number: int) -> Dialogue:
        workload = self._workload
        if isinstance(workload, Parts):
            part, nth = _part_of(workload, number)
            return self._of(part, nth, number)
        return self._of(workload, number, number)

    def _of(self, workload: RandomPrompts | FixedDialogues, nth: int, number: int) -> Dialogue:
        if isinstance(workload, RandomPrompts):
            return self._random(workload, number)
        dialogue = workload.dialogues[nth % len(workload.dialogues)]
        draw = random.Random(f"{self._seed}/unique/{number}")
        mark = "".join(draw.choices(string.ascii_lowercase, k=12))
        return _marked(dialogue, mark)

    def _random(self, workload: RandomPrompts, number: int) -> Dialogue:
        form = self._form
        if form is None:
            raise ConfigError("prompts of an exact length need a form that the server was asked for")
        count = workload.input_tokens - form.overhead
        if count < 1:
            raise ConfigError(
                f"prompts of {workload.input_tokens} tokens are too short for this server, which adds "
                f"{form.overhead} of its own to each: ask for more"
            )
        shared = min(max(workload.shared_prefix_tokens - form.overhead, 0), count)
        # The shared part depends on the scenario alone, the rest on the number too.
        picks = random.Random(f"{self._seed}/shared").choices(range(len(form.words)), k=shared)
        picks += random.Random(f"{self._seed}/prompt/{number}").choices(range(len(form.words)), k=count - shared)
        text_or_ids = (
            [form.ids[pick] for pick in picks] if form.kind == "ids" else text_of([form.words[p] for p in picks])
        )
        chat = form.kind == "chat"
        turn = Turn(
            messages=[{"role": "user", "content": str(text_or_ids)}] if chat else [],
            prompt=None if chat else text_or_ids,
            max_tokens=workload.output_tokens,
            ignore_eos=True,
            prompt_tokens=workload.input_tokens,
        )
        return Dialogue(turns=[turn], group=workload.group)


def cycle_length(workload: Workload) -> int:
    """Dialogues after which a workload begins again."""
    match workload:
        case RandomPrompts():
            return 1
        case FixedDialogues():
            return len(workload.dialogues)
        case Parts():
            return sum(workload.counts)


def trimmed(workload: Workload, measured: int | None, warm_up: int) -> Workload:
    """The workload without given dialogues that nobody will play: a file may hold ten thousands of them."""
    if not isinstance(workload, FixedDialogues):
        return workload
    first = measured if measured is not None else _MOST
    if len(workload.dialogues) <= first + warm_up:
        return workload
    last = workload.dialogues[len(workload.dialogues) - warm_up :]
    return FixedDialogues(dialogues=[*workload.dialogues[:first], *last])


def turns_of(workload: Workload, number: int) -> int:
    """Requests that dialogue `number` makes."""
    match workload:
        case RandomPrompts():
            return 1
        case FixedDialogues():
            return len(workload.dialogues[number % len(workload.dialogues)].turns)
        case Parts():
            part, nth = _part_of(workload, number)
            return turns_of(part, nth)


def _part_of(parts: Parts, number: int) -> tuple[RandomPrompts | FixedDialogues, int]:
    """The workload that dialogue `number` belongs to, and its number there: a part's dialogues come in order."""
    rounds, position = divmod(number, sum(parts.counts))
    for count, part in zip(parts.counts, parts.workloads, strict=True):
        if position < count:
            return part, rounds * count + position
        position -= count
    raise AssertionError("a position lies within the sum of the counts")


def needs_form(workload: Workload) -> bool:
    """Whether any of its prompts is random."""
    parts = workload.workloads if isinstance(workload, Parts) else [workload]
    return any(isinstance(part, RandomPrompts) for part in parts)


def _marked(dialogue: Dialogue, mark: str) -> Dialogue:
    """The dialogue with every `{unique}` filled in."""

    def fill(turn: Turn) -> Turn:
        messages = [{key: value.replace(UNIQUE, mark) for key, value in message.items()} for message in turn.messages]
        prompt = turn.prompt.replace(UNIQUE, mark) if isinstance(turn.prompt, str) else turn.prompt
        return msgspec.structs.replace(turn, messages=messages, prompt=prompt)

    return msgspec.structs.replace(dialogue, turns=[fill(turn) for turn in dialogue.turns])
