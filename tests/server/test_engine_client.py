"""The worker's end of the engine's socket: who gets which output, and what everybody hears when the engine dies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.engine.fake_engine import INVALID, EngineThread, info

from firsttoken.errors import InvalidRequest, QueueFull, RequestError, Unavailable
from firsttoken.server.engine_client import EngineClient
from firsttoken.types import GenerateRequest, SamplingParams, SequenceOutput


class Sink:
    """Collects outputs; `broken` fails at the first of them."""

    def __init__(self, *, broken: bool = False) -> None:
        self.outputs: list[SequenceOutput] = []
        self.error: RequestError | None = None
        self.broken = broken
        self._changed = asyncio.Event()

    def put(self, output: SequenceOutput) -> None:
        self.outputs.append(output)
        self._changed.set()
        if self.broken:
            raise ValueError("broken")

    def fail(self, error: RequestError) -> None:
        self.error = error
        self._changed.set()

    @property
    def tokens(self) -> list[int]:
        return [token for output in self.outputs for token in output.token_ids]

    async def until(self, count: int) -> None:
        """Waits for `count` outputs, or the failure."""
        while len(self.outputs) < count and self.error is None:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 10)


def request(id_: str, token: int = 10, *, n: int = 1, max_tokens: int | None = 3) -> GenerateRequest:
    return GenerateRequest(
        request_id=id_, prompt_token_ids=[token], n=n, sampling=SamplingParams(max_tokens=max_tokens)
    )


@contextlib.asynccontextmanager
async def connected(path: Path, *, restart: bool = False, patience: float | None = None) -> AsyncIterator[EngineClient]:
    client = EngineClient(str(path), restart=restart, timeout=patience)
    await client.connect()
    try:
        yield client
    finally:
        client.close()
        await asyncio.sleep(0)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[EngineThread]:
    engine = EngineThread(tmp_path / "engine", max_queue=4)
    yield engine
    await asyncio.to_thread(engine.close)


async def test_the_state_is_ready_once_the_engine_says_so(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        assert (client.state, client.info) == ("loading", None)
        assert await client.settled() == "ready"
        assert client.info == info()
        assert client.loading == ("ready", 1.0)


async def test_a_request_before_ready_is_unavailable_with_a_time_to_retry(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        with pytest.raises(Unavailable) as caught:
            await client.submit(request("a"), Sink())
        assert caught.value.retry_after


async def test_every_output_goes_to_its_own_sink(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sinks = [Sink() for _ in range(4)]
        await asyncio.gather(*(client.submit(request(str(i), 10 * i), sink) for i, sink in enumerate(sinks)))
        for i, sink in enumerate(sinks):
            await sink.until(3)
            assert sink.tokens == [10 * i, 10 * i + 1, 10 * i + 2]
            assert sink.outputs[-1].finish_reason == "length"


async def test_refusals_keep_their_type_field_and_time(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sink = Sink()
        with pytest.raises(InvalidRequest) as invalid:
            await client.submit(request("bad", INVALID), sink)
        assert (invalid.value.param, invalid.value.code) == ("prompt", "bad_prompt")
        await client.submit(request("full", n=4, max_tokens=None), Sink())
        with pytest.raises(QueueFull) as full:
            await client.submit(request("more"), sink)
        assert full.value.retry_after == 3.0
        assert sink.outputs == []


async def test_an_aborted_request_gives_nothing_more_and_leaves_the_engine(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sink = Sink()
        await client.submit(request("a", max_tokens=None), sink)
        await sink.until(1)
        client.abort("a")
        client.abort("a")
        count = len(sink.outputs)
        assert (await client.stats()).gauges == {"num_requests_running": 0.0}
        assert len(sink.outputs) == count
        assert engine.engine.aborted == ["a"]


async def test_a_cancelled_submit_is_an_abort(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        submit = asyncio.create_task(client.submit(request("a", max_tokens=None), Sink()))
        await asyncio.sleep(0)
        submit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submit
        await client.idle()
        assert (await client.stats()).gauges == {"num_requests_running": 0.0}


async def test_a_stopped_sequence_is_over_while_its_sibling_goes_on(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sink = Sink()
        await client.submit(request("a", n=2, max_tokens=20), sink)
        await sink.until(2)
        client.stop("a", 0)
        stopped_at = len([o for o in sink.outputs if o.index == 0])
        await client.idle()
        assert len([o for o in sink.outputs if o.index == 0]) == stopped_at
        assert len([o for o in sink.outputs if o.index == 1]) == 20


async def test_a_broken_sink_fails_alone(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        broken, sound = Sink(broken=True), Sink()
        await client.submit(request("a", max_tokens=None), broken)
        await client.submit(request("b", 50), sound)
        await sound.until(3)
        assert sound.tokens == [50, 51, 52]
        assert broken.error is not None
        assert len(broken.outputs) == 1
        await client.stats()
        assert engine.engine.aborted == ["a"]


async def test_draining_refuses_new_requests_and_waits_for_running_ones(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sink = Sink()
        await client.submit(request("a", max_tokens=10), sink)
        client.drain()
        assert client.state == "draining"
        with pytest.raises(Unavailable) as caught:
            await client.submit(request("b"), Sink())
        assert caught.value.retry_after
        await client.idle()
        assert len(sink.tokens) == 10


async def test_the_engine_s_death_fails_every_open_request_at_once(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sinks = [Sink(), Sink()]
        for i, sink in enumerate(sinks):
            await client.submit(request(str(i), max_tokens=None), sink)
        await asyncio.to_thread(engine.close)
        for sink in sinks:
            await sink.until(1 << 60)
            assert isinstance(sink.error, Unavailable)
        assert client.state == "dead"
        with pytest.raises(Unavailable):
            await client.submit(request("late"), Sink())
        with pytest.raises(Unavailable):
            await client.stats()


async def test_an_answer_that_draining_cuts_off_is_told_so(engine: EngineThread) -> None:
    async with connected(engine.path) as client:
        await client.settled()
        sink = Sink()
        await client.submit(request("a", max_tokens=None), sink)
        client.drain()
        await asyncio.to_thread(engine.close)
        await sink.until(1 << 60)
        assert isinstance(sink.error, Unavailable)
        assert sink.error.message.startswith("The server has shut down")


async def test_with_restart_the_client_comes_back_with_the_engine(engine: EngineThread) -> None:
    async with connected(engine.path, restart=True) as client:
        await client.settled()
        sink = Sink()
        await client.submit(request("a", max_tokens=None), sink)
        await asyncio.to_thread(engine.close)
        await sink.until(1 << 60)
        assert isinstance(sink.error, Unavailable)
        assert sink.error.retry_after
        assert client.state == "loading"
        engine.path.unlink()
        again = EngineThread(engine.path)
        try:
            assert await asyncio.wait_for(client.settled(), 10) == "ready"
            sink = Sink()
            await client.submit(request("b"), sink)
            await sink.until(3)
            assert sink.tokens == [10, 11, 12]
        finally:
            await asyncio.to_thread(again.close)


async def test_an_engine_that_answers_nothing_hangs_until_it_answers_again(engine: EngineThread) -> None:
    async with connected(engine.path, patience=0.9) as client:
        await client.settled()
        sink = Sink()
        engine.engine.may_step.clear()
        await client.submit(request("r", max_tokens=1), sink)
        await until(lambda: client.state == "hung", 3.0)
        with pytest.raises(Unavailable, match="does not answer") as refusal:
            await client.submit(request("late"), Sink())
        assert refusal.value.retry_after is not None
        with pytest.raises(Unavailable):
            await client.stats()
        engine.engine.may_step.set()
        await sink.until(1)
        await until(lambda: client.state == "ready", 1.0)
        assert sink.tokens == [10]


async def test_steps_that_take_long_but_end_are_no_hang(engine: EngineThread) -> None:
    async with connected(engine.path, patience=1.5) as client:
        await client.settled()
        sink = Sink()
        engine.engine.step_seconds = 0.6
        await client.submit(request("r", max_tokens=5), sink)
        states = set()
        while len(sink.outputs) < 5:
            states.add(client.state)
            await asyncio.sleep(0.01)
        assert states == {"ready"}


async def until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
