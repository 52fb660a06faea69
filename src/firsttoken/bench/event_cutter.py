"""Cuts a byte stream into server-sent events (WHATWG HTML, "Server-sent events"), whatever the packets' borders."""

from __future__ import annotations


class EventCutter:
    """Line ends are LF, CR LF or CR; comments and fields other than `data` are dropped."""

    def __init__(self) -> None:
        self._buffer = b""
        self._open_cr = False  # a CR came last: an LF after it belongs to it

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that these bytes complete. A partial event stays until its blank line comes."""
        if self._open_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        buffer = self._buffer + data
        if b"\n\n" not in buffer:
            self._buffer = buffer
            return []
        *blocks, self._buffer = buffer.split(b"\n\n")
        return [event for block in blocks if (event := _data_of(block)) is not None]

    def rest(self) -> list[bytes]:
        """At the end of the body: an event whose blank line never came. The standard drops it; servers forget it."""
        event = _data_of(self._buffer)
        self._buffer = b""
        return [] if event is None else [event]

    def _with_line_feeds(self, data: bytes) -> bytes:
        # The CR itself already became an LF, so that an event ended by CRs alone is not held back.
        if self._open_cr and data.startswith(b"\n"):
            data = data[1:]
            self._open_cr = False
        if data:
            self._open_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of(block: bytes) -> bytes | None:
    """The joined `data` lines of one event; None without any."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
