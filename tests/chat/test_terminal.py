"""The terminal chat, with scripted lines for a user and a scripted server behind httpx's transport."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from rich.console import Console

from firsttoken.chat.client import Answer, ChatClient, Options
from firsttoken.chat.terminal import TerminalChat, figures


class FakeServer:
    """Answers each request with the next scripted reply: pieces of text, or an exception raised among them."""

    def __init__(self, *replies: list[str | BaseException]) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(json.loads(request.content))
        return httpx.Response(200, stream=_Reply(self.replies.pop(0)))

    @property
    def histories(self) -> list[list[tuple[str, str]]]:
        return [[(m["role"], m["content"]) for m in request["messages"]] for request in self.requests]


class _Reply(httpx.SyncByteStream):
    def __init__(self, pieces: list[str | BaseException]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            yield f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n".encode()
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()


def lines(*script: str | BaseException) -> Callable[[str], str]:
    """A user who types these lines; after the last one the input ends."""
    rest = list(script)

    def read(prompt: str) -> str:
        if not rest:
            raise EOFError
        line = rest.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    return read


def talk(server: FakeServer, *script: str | BaseException, **options: Any) -> str:
    """Runs a whole chat and returns what the terminal showed."""
    screen = io.StringIO()
    client = ChatClient("http://server", http=httpx.Client(transport=httpx.MockTransport(server)))
    console = Console(file=screen, width=120, color_system=None)
    TerminalChat(client, "demo", console=console, read_line=lines(*script), **options).run()
    return screen.getvalue()


def test_the_whole_history_goes_with_every_turn() -> None:
    server = FakeServer(["Hi", "!"], ["Bye"])
    screen = talk(server, "hello", "and now?", system="Be brief.")
    assert server.histories[1] == [
        ("system", "Be brief."),
        ("user", "hello"),
        ("assistant", "Hi!"),
        ("user", "and now?"),
    ]
    assert "Hi!" in screen
    assert "3 tokens · prompt 7, 2 cached" in screen


def test_clear_forgets_all_but_the_system_message() -> None:
    server = FakeServer(["one"], ["two"])
    talk(server, "first", "/clear", "second", system="Be brief.")
    assert server.histories[1] == [("system", "Be brief."), ("user", "second")]


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said() -> None:
    server = FakeServer(["half an ", KeyboardInterrupt(), "answer"], ["rest"])
    screen = talk(server, "go", "go on")
    assert "Stopped." in screen
    assert server.histories[1][1] == ("assistant", "half an ")


def test_ctrl_c_before_the_first_text_drops_the_question() -> None:
    server = FakeServer([KeyboardInterrupt()], ["fine"])
    talk(server, "never mind", "another")
    assert server.histories[1] == [("user", "another")]


def test_ctrl_c_at_the_prompt_tells_how_to_leave() -> None:
    server = FakeServer(["fine"])
    screen = talk(server, KeyboardInterrupt(), "still here")
    assert "/quit leaves" in screen
    assert len(server.requests) == 1


def test_a_broken_connection_is_told_and_the_chat_goes_on() -> None:
    server = FakeServer([httpx.ReadError("gone")], ["back"])
    screen = talk(server, "one", "two")
    assert "is the server still running?" in screen
    assert "back" in screen


def test_quit_and_exit_leave() -> None:
    for word in ("/quit", "/exit"):
        server = FakeServer(["never"])
        talk(server, word, "not sent")
        assert server.requests == []


def test_empty_lines_and_unknown_commands_are_not_sent() -> None:
    server = FakeServer()
    screen = talk(server, "", "   ", "/hepl", "/help")
    assert "no command /hepl" in screen
    assert "/clear" in screen
    assert server.requests == []


def test_a_question_that_only_begins_with_a_slash_is_sent() -> None:
    server = FakeServer(["It is the root."])
    talk(server, "/ is which folder?")
    assert server.histories[0] == [("user", "/ is which folder?")]


def test_control_characters_of_the_model_never_reach_the_terminal() -> None:
    screen = talk(FakeServer(["safe\x1b[2J\x07\x9b1m\ttext\n[bold]"]), "hi")
    assert "\x1b" not in screen
    assert "\x07" not in screen
    assert "\x9b" not in screen
    assert "\ttext\n[bold]" in screen


def test_options_go_with_the_request_and_a_footnote_under_the_figures() -> None:
    server = FakeServer(["fine"])
    screen = talk(server, "hi", options=Options(max_tokens=9), footnote=lambda answer: f"note on {answer.text}")
    assert server.requests[0]["max_completion_tokens"] == 9
    assert "note on fine" in screen


def test_figures_leave_out_what_is_not_known() -> None:
    assert figures(Answer(text="x", ttft=0.0821, e2e=1.5)) == "TTFT 82 ms · E2E 1.50 s"
    full = Answer("x", 0.5, 2.5, 21, 40, 16, "length")
    assert figures(full) == (
        "TTFT 500 ms · 10.0 tok/s · 21 tokens · prompt 40, 16 cached · E2E 2.50 s · cut at the token limit"
    )
