"""A side's measurement in a process of its own: its memory is free again when the next one starts."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection

from firsttoken.errors import ConfigError, FirstTokenError, ModelError, RequestError
from firsttoken.quality.side import Finding, Tell, measure
from firsttoken.quality.work import Work


def measure_apart(work: Work, tell: Tell) -> Finding:
    """As `measure`. Ends the process whatever happens here."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()
    try:
        while True:
            message = ours.recv()
            if isinstance(message, str):
                tell(message)
            elif isinstance(message, FirstTokenError):
                raise message
            else:
                assert isinstance(message, Finding)
                return message
    except EOFError:
        process.join()
        raise ModelError(
            f"The process that ran {work.settings.shown!r} ended with code {process.exitcode}; what it said is above."
        ) from None
    finally:
        process.terminate()
        process.join()


def _child(pipe: Connection, work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    threading.Thread(target=_watch, args=(pipe,), daemon=True).start()
    try:
        pipe.send(measure(work, pipe.send))
    except FirstTokenError as error:
        pipe.send(ConfigError(error.message) if isinstance(error, RequestError) else error)


def _watch(pipe: Connection) -> None:
    """Ends this process with the parent, which says nothing as long as it lives."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(1)
