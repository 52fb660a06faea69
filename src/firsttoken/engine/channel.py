"""The engine's end of the Unix socket: frames in and out of many workers, without threads and without blocking."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from dataclasses import dataclass, field

import msgspec

from firsttoken.wire import FrameReader, ToEngine, ToWorker, decode_to_engine, encode_frame

log = logging.getLogger(__name__)

_RECEIVE = 256 * 1024  # bytes a read
_READS_PER_POLL = 8  # so that one flooding worker cannot hold the step loop


@dataclass(slots=True, eq=False)
class Peer:
    """One connected worker, or the supervisor."""

    sock: socket.socket
    reader: FrameReader = field(default_factory=FrameReader)
    outbox: bytearray = field(default_factory=bytearray)  # what the kernel has not taken yet
    open: bool = True


@dataclass(slots=True)
class Events:
    """What one poll found. A peer's messages come in order; a peer in `gone` sends nothing more."""

    joined: list[Peer] = field(default_factory=list)
    messages: list[tuple[Peer, ToEngine]] = field(default_factory=list)
    gone: list[Peer] = field(default_factory=list)


class Channel:
    """Accepts workers on a listening socket and exchanges frames with them.

    The step loop calls `poll` itself: a poll that finds nothing costs about two microseconds, while a thread would
    cost a wake-up and a fight for the interpreter lock at every step. A peer that does not read is dropped once more
    than `max_outbox` bytes wait for it, so it never stalls the others.
    """

    def __init__(self, listener: socket.socket, *, max_outbox: int = 64 * 1024 * 1024) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._max_outbox = max_outbox
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._woken)
        self._peers: set[Peer] = set()
        self._gone: list[Peer] = []

    def poll(self, timeout: float | None) -> Events:
        """Moves what can be moved. `timeout` in seconds: 0 returns at once, None waits for anything to happen."""
        events = Events()
        for key, mask in self._selector.select(0 if self._gone else timeout):
            peer = key.data
            if peer is None:
                self._accept(events)
                continue
            if peer is self._woken:
                self._woken.recv(_RECEIVE)
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(peer)
            if mask & selectors.EVENT_READ and peer.open:
                self._receive(peer, events)
        events.gone, self._gone = self._gone, []
        return events

    def wake(self) -> None:
        """Ends a poll that waits, or the next one. Safe to call from threads."""
        with contextlib.suppress(OSError):  # full: it will wake up; closed: nobody sleeps
            self._waker.send(b"\0")

    def send(self, peer: Peer, message: ToWorker) -> None:
        """Queues a message; what the kernel does not take now goes out in later polls."""
        if not peer.open:
            return
        frame = encode_frame(message)
        if peer.outbox:
            peer.outbox += frame
        else:
            sent = self._write(peer, frame)
            if not peer.open or sent == len(frame):
                return
            peer.outbox += memoryview(frame)[sent:]
            self._selector.modify(peer.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
        if len(peer.outbox) > self._max_outbox:
            log.warning("a worker has stopped reading; its connection is closed and its requests are aborted")
            self._drop(peer)

    def broadcast(self, message: ToWorker) -> None:
        for peer in tuple(self._peers):
            self.send(peer, message)

    def flush(self, timeout: float) -> None:
        """Waits until everything is sent or `timeout` seconds have gone; for the last message before the end."""
        deadline = time.monotonic() + timeout
        while any(peer.outbox for peer in self._peers) and (left := deadline - time.monotonic()) > 0:
            self.poll(min(left, 0.05))

    def close(self) -> None:
        for peer in tuple(self._peers):
            self._drop(peer)
        self._selector.close()
        self._listener.close()
        self._woken.close()
        self._waker.close()

    def _accept(self, events: Events) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # nothing more waits, or the one that waited has left
                return
            sock.setblocking(False)
            peer = Peer(sock)
            self._peers.add(peer)
            self._selector.register(sock, selectors.EVENT_READ, peer)
            events.joined.append(peer)

    def _receive(self, peer: Peer, events: Events) -> None:
        for _ in range(_READS_PER_POLL):
            try:
                data = peer.sock.recv(_RECEIVE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(peer)
                return
            try:
                events.messages.extend((peer, decode_to_engine(body)) for body in peer.reader.feed(data))
            except (ValueError, msgspec.DecodeError) as error:
                log.error("a worker sent a frame that cannot be read (%s); its connection is closed", error)
                self._drop(peer)
                return
            if len(data) < _RECEIVE:
                return

    def _flush(self, peer: Peer) -> None:
        sent = self._write(peer, peer.outbox)
        if not peer.open:
            return
        del peer.outbox[:sent]
        if not peer.outbox:
            self._selector.modify(peer.sock, selectors.EVENT_READ, peer)

    def _write(self, peer: Peer, data: bytes | bytearray) -> int:
        try:
            return peer.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._drop(peer)
            return 0

    def _drop(self, peer: Peer) -> None:
        peer.open = False
        self._peers.discard(peer)
        self._selector.unregister(peer.sock)
        with contextlib.suppress(OSError):
            peer.sock.close()
        peer.outbox.clear()
        self._gone.append(peer)
