"""A client process, `python -m firsttoken.bench.worker [CORE,...]`: jobs come in on stdin, records go out on stdout."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from firsttoken.bench.client_ceiling import chunks_per_second
from firsttoken.bench.http_client import Address, HttpClient
from firsttoken.bench.job import (
    Broken,
    Decoding,
    Done,
    Finished,
    FromClient,
    Go,
    Job,
    Prepared,
    Run,
    SelfTest,
    Start,
    Tested,
    ToClient,
    decode_to_client,
    encode_line,
)
from firsttoken.bench.load import LoadGenerator
from firsttoken.bench.records import RequestRecord
from firsttoken.bench.token_counts import TokenEnds, token_ends_of
from firsttoken.errors import FirstTokenError


class Worker:
    """Runs one job after another until stdin ends."""

    def __init__(self, messages: asyncio.Queue[ToClient | None], out: SimpleQueue[FromClient | RequestRecord]) -> None:
        self._messages = messages
        self._out = out
        self._token_ends: dict[str, TokenEnds] = {}

    async def serve(self) -> None:
        while (message := await self._messages.get()) is not None:
            try:
                if isinstance(message, Run):
                    await self._run(message.job)
                elif isinstance(message, SelfTest):
                    await self._test(message)
            except FirstTokenError as error:
                self._out.put(Broken(str(error)))

    async def _run(self, job: Job) -> None:
        target = job.target
        client = HttpClient(
            Address.parse(target.url), headers=target.headers, timeout=target.timeout, verify_tls=target.verify_tls
        )
        generator = LoadGenerator(
            job, client, self._out.put, self._ends_of(target.tokenizer), lambda: self._out.put(Decoding())
        )
        generator.prepare()
        self._out.put(Prepared())
        message = await self._messages.get()
        if not isinstance(message, Start):
            self._out.put(Finished())
            return
        # A collection pauses every stream of this process; what a job leaves behind is collected after it.
        gc.collect()
        gc.disable()
        try:
            await self._until_cancelled(generator, message.at)
        finally:
            gc.enable()
            client.close()
        self._out.put(Finished(generator.late))

    async def _test(self, test: SelfTest) -> None:
        self._out.put(Prepared())
        message = await self._messages.get()
        if isinstance(message, Start):
            await asyncio.sleep(max(message.at - time.monotonic(), 0))
            self._out.put(Tested(await chunks_per_second(test.seconds)))
        self._out.put(Finished())

    async def _until_cancelled(self, generator: LoadGenerator, start: float) -> None:
        """Plays to the end, or until `Cancel` or the supervisor's end comes in."""

        async def listen() -> None:
            while isinstance(await self._messages.get(), Go):
                generator.go()

        task = asyncio.create_task(generator.play(start))
        listener = asyncio.create_task(listen())
        await asyncio.wait({task, listener}, return_when=asyncio.FIRST_COMPLETED)
        if listener.done():
            task.cancel()
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(result, Exception):
            raise result

    def _ends_of(self, path: str) -> TokenEnds | None:
        if not path:
            return None
        if path not in self._token_ends:
            self._token_ends[path] = token_ends_of(Path(path))
        return self._token_ends[path]


def _read(stream: BinaryIO, loop: asyncio.AbstractEventLoop, messages: asyncio.Queue[ToClient | None]) -> None:
    for line in stream:
        loop.call_soon_threadsafe(messages.put_nowait, decode_to_client(line))
    os._exit(1)  # the supervisor is gone: no load may go on without it


def _write(stream: BinaryIO, out: SimpleQueue[FromClient | RequestRecord]) -> None:
    """In a thread: a full pipe must not hold the event loop up."""
    while True:
        message = out.get()
        if isinstance(message, RequestRecord):
            message = Done(msgspec.Raw(msgspec.json.encode(message)))
        stream.write(encode_line(message))
        stream.flush()


async def _main(source: BinaryIO, sink: BinaryIO) -> None:
    messages: asyncio.Queue[ToClient | None] = asyncio.Queue()
    out: SimpleQueue[FromClient | RequestRecord] = SimpleQueue()
    threading.Thread(target=_read, args=(source, asyncio.get_running_loop(), messages), daemon=True).start()
    threading.Thread(target=_write, args=(sink, out), daemon=True).start()
    await Worker(messages, out).serve()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's, which then says Cancel
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
    with suppress(OSError):  # not everyone may
        # A client needs little, but at once: bytes that wait for a core look like a slow server.
        os.nice(-10)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not break the protocol
    work = _main(sys.stdin.buffer, sink)
    if sys.platform == "win32":
        asyncio.run(work)
    else:
        import uvloop

        uvloop.run(work)


if __name__ == "__main__":
    main()
