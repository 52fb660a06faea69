"""The server that the hard tests speak to, with a tiny model: as users run it, and small enough to fill."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.live_server import wait_until
from tests.api.whole_server import WholeServer, whole_server
from tests.builders import tiny_model_folder
from tests.soak.processes import Processes, growth
from tests.tokenizer.templates import CHATML

FLAGS = (
    *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--kv-cache-memory", "8MiB"),
    *("--scheduling-policy", "priority"),
)
MAX_GROWTH = 20.0  # MB, of each process


@contextlib.contextmanager
def soak_server(*flags: str) -> Iterator[WholeServer]:
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model_folder(Path(folder) / "tiny")
        template = model / "with_tools.jinja"
        template.write_text(CHATML)
        with whole_server(model, *FLAGS, "--chat-template", str(template), *flags) as running:
            yield running


class Watched:
    """A server before and after something hard: it must be as if nothing had been."""

    def __init__(self, server: WholeServer) -> None:
        self._server = server
        self._processes = Processes(server.pid)
        self._answer = self._ask()
        self._before = self._processes.readings()

    def check(self, memory: float = MAX_GROWTH) -> str:
        """Asserts that nothing runs, holds blocks or has grown, and that the same question has the same answer.

        `memory` is how many MB a process may have grown. Returns the growth in words.
        """
        wait_until(self._server.is_idle, 60)  # clients that left may still stand in the queue of connections
        tokens, logprobs = self._ask()
        assert tokens == self._answer[0], "the same question has another answer"
        assert logprobs == pytest.approx(self._answer[1], abs=1e-3)
        wait_until(lambda: self._new_files() <= 1, 10)  # the client's own connection
        grown = growth(self._before, self._processes.readings())
        assert max(grown.values()) < memory, f"memory grew: {grown}"
        return ", ".join(f"{name.rpartition(' ')[0]} {size:+.1f} MB" for name, size in grown.items())

    def _new_files(self) -> int:
        """Of the process that opened most."""
        now = self._processes.readings()
        return max(now[name].files - before.files for name, before in self._before.items())

    def _ask(self) -> tuple[list[str], list[float]]:
        fields = {"max_tokens": 30, "temperature": 0, "ignore_eos": True, "logprobs": 0}
        answer = self._server.complete("The quick brown fox", return_tokens_as_token_ids=True, **fields)
        logprobs = answer["choices"][0]["logprobs"]
        return logprobs["tokens"], logprobs["token_logprobs"]
