"""One HTTP request's work in the engine: its prompts, their sequences, and what ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from starlette.types import Receive

from firsttoken.errors import RequestError
from firsttoken.server.backend import Backend
from firsttoken.server.choice import Choice, TokenEntry
from firsttoken.server.error_handlers import FAILED, EngineFault
from firsttoken.types import GenerateRequest, SequenceOutput, TokenLogprob

log = logging.getLogger("firsttoken.server")

PromptEntries = Callable[[list[TokenLogprob | None]], list[TokenEntry]]


@dataclass(slots=True, kw_only=True)
class Run:
    """One prompt, and its `n` choices in order."""

    request: GenerateRequest
    choices: list[Choice]
    prompt_entries: PromptEntries | None = None  # given where the prompt's own logprobs are wanted
    prompt_logprobs: list[TokenLogprob | None] | None = None  # once they are there
    cached_tokens: int = 0
    submitted: bool = False


class _RunSink:
    """Feeds one run; called by the backend's dispatcher, which a fault in here must never reach."""

    def __init__(self, run: Run, owner: Generation, backend: Backend) -> None:
        self._run = run
        self._owner = owner
        self._backend = backend

    def put(self, output: SequenceOutput) -> None:
        run = self._run
        choice = run.choices[output.index]
        try:
            if output.index == 0:  # the others find what the first one has just computed
                run.cached_tokens = output.num_cached_tokens
            if output.prompt_logprobs is not None:
                run.prompt_logprobs = output.prompt_logprobs
                if run.prompt_entries is not None:
                    for each in run.choices:
                        each.prepend_prompt(run.prompt_entries(output.prompt_logprobs))
            if choice.accept(output):
                self._backend.stop(run.request.request_id, output.index)
        except Exception:
            log.exception("a request's output could not be turned into text")
            choice.error = EngineFault(FAILED, code="internal_error")
        if self._owner.streams or choice.done:
            self._owner.changed.set()

    def fail(self, error: RequestError) -> None:
        self._owner.error = error
        self._owner.changed.set()


@dataclass(slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0  # of the completion's


@dataclass(slots=True)
class Generation:
    """Start it, then watch `changed` until `done` or `failure`; call `abort` at the end whatever happened."""

    backend: Backend
    runs: list[Run]
    streams: bool  # whether every token is waited for, or the end alone
    error: RequestError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    choices: list[Choice] = field(init=False)

    def __post_init__(self) -> None:
        self.choices = [choice for run in self.runs for choice in run.choices]

    @property
    def choices_with_runs(self) -> Iterator[tuple[Run, Choice]]:
        return ((run, choice) for run in self.runs for choice in run.choices)

    @property
    def done(self) -> bool:
        return all(choice.done for choice in self.choices)

    @property
    def failure(self) -> RequestError | None:
        if self.error is not None:
            return self.error
        return next((choice.error for choice in self.choices if choice.error is not None), None)

    @property
    def usage(self) -> Usage:
        return Usage(
            sum(len(run.request.prompt_token_ids) for run in self.runs),
            sum(choice.tokens for choice in self.choices),
            sum(run.cached_tokens for run in self.runs),
            sum(choice.reasoning_tokens for choice in self.choices),
        )

    async def start(self) -> None:
        """Returns once the engine has accepted every prompt. Raises what the backend raises, with none left behind."""
        try:
            for run in self.runs:
                if all(choice.done for choice in run.choices):
                    continue
                run.submitted = True
                await self.backend.submit(run.request, _RunSink(run, self, self.backend))
        except BaseException:
            self.abort()
            raise
        self.changed.set()  # a request that the engine has no part in is done already

    def abort(self) -> None:
        """Frees what still runs; nothing to do for a run whose choices all ended by themselves."""
        for run in self.runs:
            if run.submitted and not all(choice.finish_reason for choice in run.choices):
                self.backend.abort(run.request.request_id)
            run.submitted = False

    async def finish(self, receive: Receive) -> bool:
        """Waits for the whole answer; False if the client went away first. Raises the failure."""
        gone = asyncio.create_task(until_disconnect(receive, self.changed))
        try:
            while not self.done:
                if self.failure is not None:
                    raise self.failure
                if gone.done():
                    return False
                await self.changed.wait()
                self.changed.clear()
            if self.failure is not None:
                raise self.failure
            return True
        finally:
            gone.cancel()
            self.abort()


async def until_disconnect(receive: Receive, changed: asyncio.Event) -> None:
    """Ends, and wakes whoever watches `changed`, once the client is gone."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        changed.set()
