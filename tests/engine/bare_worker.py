"""A worker that only speaks frames, and the requests that it sends."""

from __future__ import annotations

import select
import socket
from pathlib import Path

from firsttoken.types import GenerateRequest, SamplingParams
from firsttoken.wire import (
    FrameReader,
    Step,
    ToEngine,
    ToWorker,
    decode_to_worker,
    encode_frame,
)


class Worker:
    """A bare worker: sends frames and collects what comes back."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(path))
        self.sock.settimeout(10)
        self._reader = FrameReader()
        self._inbox: list[ToWorker] = []

    def send(self, *messages: ToEngine) -> None:
        self.sock.sendall(b"".join(encode_frame(message) for message in messages))

    def next(self) -> ToWorker | None:
        """The next message, or None at the end of file."""
        while not self._inbox:
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._inbox += [decode_to_worker(body) for body in self._reader.feed(data)]
        return self._inbox.pop(0)

    def waiting(self) -> list[ToWorker]:
        """What has arrived by now."""
        while select.select([self.sock], [], [], 0)[0] and (data := self.sock.recv(1 << 20)):
            self._inbox += [decode_to_worker(body) for body in self._reader.feed(data)]
        inbox, self._inbox = self._inbox, []
        return inbox


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def request(id_: str, *prompt: int, n: int = 1, max_tokens: int | None = 3) -> GenerateRequest:
    return GenerateRequest(
        request_id=id_, prompt_token_ids=list(prompt or (10,)), n=n, sampling=SamplingParams(max_tokens=max_tokens)
    )


def tokens(messages: list[ToWorker]) -> list[tuple[str, int, list[int]]]:
    return [(o.request_id, o.index, o.token_ids) for m in messages if isinstance(m, Step) for o in m.outputs]
