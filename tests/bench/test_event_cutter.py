from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.bench.event_cutter import EventCutter

STREAM = (
    b": a comment\n\n"
    b"data: {\"a\": 1}\n\n"
    b"event: note\r\ndata: two\r\ndata: lines\r\n\r\n"
    b"id: 7\ndata:no space\n\n"
    b"data: cr\r\r"
    + "data: 快 🚀\n\n".encode()
    + b"\n\n\ndata: [DONE]\n\n"
)  # fmt: skip
EVENTS = [b'{"a": 1}', b"two\nlines", b"no space", b"cr", "快 🚀".encode(), b"[DONE]"]


def cut(pieces: list[bytes]) -> list[bytes]:
    cutter = EventCutter()
    return [event for piece in pieces for event in cutter.feed(piece)]


def test_a_stream_in_one_piece_is_cut_into_its_events() -> None:
    assert cut([STREAM]) == EVENTS


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_packet_borders_change_nothing(borders: set[int]) -> None:
    edges = [0, *sorted(borders), len(STREAM)]
    assert cut([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == EVENTS


def test_an_event_comes_out_with_the_byte_that_completes_it() -> None:
    cutter = EventCutter()
    assert [cutter.feed(piece) for piece in (b"data: a\n", b"\n", b"data: b\r", b"\r", b"data: c\r\n", b"\r\n")] == [
        [],
        [b"a"],
        [],
        [b"b"],
        [],
        [b"c"],
    ]


def test_an_event_without_its_blank_line_is_left_for_the_end() -> None:
    cutter = EventCutter()
    assert cutter.feed(b"data: [DONE]") == []
    assert cutter.rest() == [b"[DONE]"]
    assert cutter.rest() == []
