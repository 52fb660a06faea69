"""Offers requests to a server: a closed loop keeps so many in flight, an open loop follows a schedule whatever happens.

A closed loop slows down with the server and so hides its queue; an open loop does not ("coordinated omission"). That
is why an open loop's records carry the time at which a request was due beside the time at which it was sent.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from firsttoken.bench.http_client import HttpClient
from firsttoken.bench.job import Arrival, Job
from firsttoken.bench.prompts import PromptSource
from firsttoken.bench.records import RequestRecord
from firsttoken.bench.scenario import Dialogue, Turn
from firsttoken.bench.stream_answer import StreamAnswer
from firsttoken.bench.token_counts import TokenEnds

Emit = Callable[[RequestRecord], None]
_PREPARED = 4096  # dialogues made before the start of a job whose number is open
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds that a closed loop's slot rests after failures, doubling
_TICK = 0.02  # seconds between looks at how late the event loop is


class LoadGenerator:
    """Plays one job. `prepare` makes the prompts; `play` sends them."""

    def __init__(
        self,
        job: Job,
        client: HttpClient,
        emit: Emit,
        token_ends: TokenEnds | None = None,
        tell_decoding: Callable[[], None] = lambda: None,
    ) -> None:
        self._job = job
        self._tell_decoding = tell_decoding
        self._told: set[int] = set()  # dialogues that have had their first chunks
        self._go = asyncio.Event()
        self._client = client
        self._emit = emit
        self._token_ends = token_ends
        self._source = PromptSource(job.workload, job.form, job.seed)
        self._ready: dict[int, Dialogue] = {}
        self._first_bodies: dict[int, bytes] = {}
        self.late = 0.0  # seconds, at worst

    def prepare(self) -> None:
        """Makes the prompts and first bodies, so that nothing but sending happens while the clock runs."""
        job = self._job
        numbers = [arrival.number for arrival in job.arrivals] or [*job.numbers, *job.held]
        if not numbers:
            guess = min(_PREPARED, 32 * len(job.streams))
            numbers = [job.first + place * job.step for place in range(guess)]
        for number in numbers:
            dialogue = self._source.dialogue(number)
            self._ready[number] = dialogue
            if dialogue.turns:
                self._first_bodies[number] = self._body(dialogue.turns[0], dialogue.turns[0].messages)

    async def play(self, start: float) -> None:
        """Runs from `start` (seconds of `time.monotonic()`) until all has ended."""
        job = self._job
        watch = asyncio.create_task(self._watch_loop())
        try:
            await _sleep_until(start)
            async with asyncio.TaskGroup() as group:
                if job.arrivals:
                    for arrival in job.arrivals:
                        group.create_task(self._arrive(arrival, start))
                else:
                    numbers = self._numbers()
                    for stream in job.streams:
                        group.create_task(self._slot(stream, numbers, start))
                    for number in job.held:
                        group.create_task(self._held(number))
        finally:
            watch.cancel()

    def _numbers(self) -> Iterator[int]:
        """What the slots share: each takes the next dialogue when it is free."""
        job = self._job
        return iter(job.numbers) if job.numbers else itertools.count(job.first, job.step)

    async def _slot(self, stream: int, numbers: Iterator[int], start: float) -> None:
        duration = self._job.duration
        failures = 0
        for number in numbers:
            if duration is not None and time.monotonic() >= start + duration:
                return
            answered = await self._dialogue(number, stream, None)
            self._decodes(number)  # it may have ended before its first chunks
            if answered:
                failures = 0
            else:  # a server that refuses at once must not be asked ten thousand times a second
                await asyncio.sleep(min(_PAUSE * 2**failures, _LONGEST_PAUSE))
                failures = min(failures + 1, 16)

    def _decodes(self, number: int) -> None:
        if self._job.tells_after and number not in self._told:
            self._told.add(number)
            self._tell_decoding()

    def go(self) -> None:
        """All are decoding: what was held goes out."""
        self._go.set()

    async def _held(self, number: int) -> None:
        await self._go.wait()
        await self._dialogue(number, number, None)

    async def _arrive(self, arrival: Arrival, start: float) -> None:
        due = start + arrival.at
        await _sleep_until(due)
        await self._dialogue(arrival.number, arrival.number, due)

    async def _dialogue(self, number: int, stream: int, due: float | None) -> bool:
        """Plays every turn; False where one failed, and the rest with it."""
        dialogue = self._ready.pop(number, None) or self._source.dialogue(number)
        history: list[dict[str, str]] = []
        for place, turn in enumerate(dialogue.turns):
            history += turn.messages
            body = self._first_bodies.pop(number, None) if place == 0 else None
            # Later turns follow the answer before them: only the first has a time on the schedule.
            answer = await self._request(
                turn, body or self._body(turn, history), number, place, stream, due if place == 0 else None, dialogue
            )
            if answer.record.error is not None:
                return False
            if turn.messages:
                reply = turn.reply if turn.reply is not None else answer.text
                history.append({"role": "assistant", "content": reply})
        return True

    async def _request(
        self, turn: Turn, body: bytes, number: int, place: int, stream: int, due: float | None, dialogue: Dialogue
    ) -> StreamAnswer:
        job = self._job
        record = RequestRecord(
            id=f"{job.scenario}/{job.phase}/{number}/{place}",
            scenario=job.scenario,
            phase=job.phase,
            stream=stream,
            turn=place,
            group=dialogue.group,
            client=job.client,
            intended=due,
            max_tokens=turn.max_tokens,
            ignore_eos=turn.ignore_eos,
            prompt_tokens_intended=turn.prompt_tokens,
        )
        answer = StreamAnswer(record, self._token_ends, tells_after=job.tells_after, tell=lambda: self._decodes(number))
        path = "/v1/completions" if turn.prompt is not None else "/v1/chat/completions"
        try:
            await self._client.post(path, body, answer)
        finally:
            if record.sent:  # cancelled before it was sent: nothing to tell
                self._emit(record)
        return answer

    def _body(self, turn: Turn, messages: list[dict[str, str]]) -> bytes:
        job = self._job
        body: dict[str, Any] = {
            "model": job.target.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            # Written as 20, not 20.0: servers want whole numbers for top_k.
            **{name: int(value) if value == int(value) else value for name, value in job.sampling.items()},
        }
        if turn.prompt is not None:
            body["prompt"] = turn.prompt
        else:
            body["messages"] = messages
        if turn.max_tokens is not None:
            body["max_tokens"] = turn.max_tokens
        if turn.ignore_eos and job.target.ignore_eos:
            body["ignore_eos"] = True
        body.update(job.extra_body | job.target.body)
        return msgspec.json.encode(body)

    async def _watch_loop(self) -> None:
        """Notes by how much a timer was late at worst: what a busy or preempted client adds to its own figures."""
        while True:
            due = time.monotonic() + _TICK
            await asyncio.sleep(_TICK)
            self.late = max(self.late, time.monotonic() - due)


async def _sleep_until(at: float) -> None:
    """Waits for a time of `time.monotonic()`, never less: loops round timers to a millisecond, some of them down."""
    left = at - time.monotonic()
    while left > 0:
        await asyncio.sleep(left)
        left = at - time.monotonic()
