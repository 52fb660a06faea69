"""One API worker: the HTTP server on the shared listening socket, with its tie to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn

from firsttoken.child import Parent
from firsttoken.config import ServerConfig
from firsttoken.errors import FirstTokenError
from firsttoken.server.app import create_app
from firsttoken.server.engine_client import EngineClient
from firsttoken.server.http_protocol import BoundedHttpProtocol, protocol_for
from firsttoken.server.rehearsal import rehearse
from firsttoken.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_GOODBYE = 3.0  # seconds for responses to go out once their last token or error is known

_MAX_FILES = 65536
_LOOK = 0.05  # seconds between looks at who still reads


class _Server(uvicorn.Server):
    """Leaves the signals to the worker: uvicorn would close the listening socket at the first SIGTERM, while a
    draining worker still has to answer 503."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Status:
    """One line each to the supervisor: `ready`, or `failed` and a sentence."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def ready(self) -> None:
        self._write("ready")

    def failed(self, message: str) -> None:
        self._write("failed " + " ".join(message.split()))

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._fd, line.encode() + b"\n")


async def run(config: ServerConfig, listener: socket.socket, status: Status) -> None:
    """Serves until SIGTERM, then drains. Raises FirstTokenError when the tokeniser or template cannot be used."""
    client = EngineClient(config.engine_socket, restart=config.engine_dead == "restart", timeout=config.engine_timeout)
    await client.connect()
    tokenizer = Tokenizer.load(config.tokenizer_path, chat_template=config.chat_template)
    tokenizer.warm()
    app = create_app(config, client, tokenizer)
    await rehearse(app, config, tokenizer)
    server = _Server(
        uvicorn.Config(
            app,
            http=protocol_for(config),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=config.keep_alive_timeout,  # type: ignore[arg-type]  # any number of seconds
            timeout_graceful_shutdown=int(_GOODBYE),
        )
    )
    # What exists now lives as long as the process: later collections need not look at it again.
    gc.collect()
    gc.freeze()
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    announcing = asyncio.create_task(_announce(client, status))
    try:
        stop = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait({stop, serving}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        # With the engine dead there is nothing to wait for but the way of the error events.
        limit = min(config.drain_seconds, _GOODBYE) if client.state == "dead" else config.drain_seconds
        client.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_answered(client, server), limit)
    finally:
        announcing.cancel()
        client.close()  # what still runs gets an error event now
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_sent(server), _GOODBYE)
        for connection in _owing(server):
            connection.transport.abort()  # nobody reads there; uvicorn would cancel into the log
        server.should_exit = True
        await serving


async def _answered(client: EngineClient, server: uvicorn.Server) -> None:
    """Waits until the engine has nothing more for us and slow readers have taken what there was.

    A request that has not come whole would be refused, so it is not waited for.
    """
    await client.idle()
    await _sent(server)


async def _sent(server: uvicorn.Server) -> None:
    """Waits until every answer has left for the kernel."""
    while _owing(server) and (responses := set(server.server_state.tasks)):
        await asyncio.wait(responses, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)


def _owing(server: uvicorn.Server) -> list[BoundedHttpProtocol]:
    connections = server.server_state.connections
    return [each for each in connections if isinstance(each, BoundedHttpProtocol) and each.owes_an_answer]


async def _announce(client: EngineClient, status: Status) -> None:
    if await client.settled() == "ready":
        status.ready()


def main() -> int:
    """Entry of the process: `argv` holds the inherited listening socket and the status pipe; stdin is the tie to the
    supervisor."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s api %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means
    _allow_many_connections()
    listener = socket.socket(fileno=int(sys.argv[1]))
    status = Status(int(sys.argv[2]))
    config = Parent().config(ServerConfig)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(run(config, listener, status))
    except FirstTokenError as error:
        status.failed(str(error))
        return 1
    return 0


def _allow_many_connections() -> None:
    """The usual soft limit of 1024 files would let as many idle connections keep everybody else out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems have a lower bound than they tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not built for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    sys.exit(main())
