"""The terminal chat, with scripted lines for a user and a scripted server over real sockets."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.chat.scripted_chat import CUT, Refusal, Reply, ScriptedChat, in_thread

from firsttoken.chat.answer import Answer
from firsttoken.chat.attachments import LARGEST, MOST
from firsttoken.chat.chat_server import ChatServer
from firsttoken.chat.commands import COMMANDS, Commands
from firsttoken.chat.history import History, Turn
from firsttoken.chat.saved_chats import SavedChats
from firsttoken.chat.settings import Model, Settings
from firsttoken.chat.terminal import TerminalChat

Line = str | BaseException | Callable[[str], str]


class User:
    """Types these lines; after the last one the input ends. A function gets what is there to be edited."""

    def __init__(self, *script: Line) -> None:
        self._script = list(script)

    def __call__(self, prompt: str, default: str = "") -> str:
        if not self._script:
            raise EOFError
        line = self._script.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line if isinstance(line, str) else line(default)


def talk(server: ScriptedChat, *script: Line, **options: Any) -> str:
    """Runs a whole chat and returns what the terminal showed."""
    screen = io.StringIO()
    console = Console(file=screen, width=200, color_system=None)
    model = options.pop("model", Model("demo", 4096, Settings(temperature=0.2, top_k=20)))
    user = User(*script)
    with in_thread(server), asyncio.Runner() as runner:
        client = ChatServer(server.url)
        chat = TerminalChat(client, model, runner=runner, console=console, **options)
        chat.run(user, Commands(chat, user))
        runner.run(client.close())
    return screen.getvalue()


def test_the_whole_history_goes_with_every_turn() -> None:
    server = ScriptedChat(Reply(["Hi", "!"]), Reply(["Bye"]))
    screen = talk(server, "hello", "and now?", history=History("Be brief."))
    expected = [("system", "Be brief."), ("user", "hello"), ("assistant", "Hi!"), ("user", "and now?")]
    assert server.histories[1] == expected
    assert "Hi!" in screen
    assert "3 tokens · prompt 7, 29% cached" in screen


def test_ctrl_c_at_the_prompt_tells_how_to_leave() -> None:
    server = ScriptedChat(Reply(["fine"]))
    screen = talk(server, KeyboardInterrupt(), "still here")
    assert "/quit leaves" in screen
    assert len(server.requests) == 1


def test_a_broken_answer_is_told_kept_and_the_chat_goes_on() -> None:
    server = ScriptedChat(Reply(["half an ", CUT]), Reply(["back"]))
    screen = talk(server, "one", "two")
    assert "The answer was cut off: the server closed the connection." in screen
    assert server.histories[1][1] == ("assistant", "half an ")
    assert "back" in screen


def test_a_refusal_is_told_and_leaves_no_trace_in_the_history() -> None:
    server = ScriptedChat(Refusal(400, "Invalid 'seed'."), Reply(["fine"]))
    screen = talk(server, "one", "two")
    assert "Invalid 'seed'." in screen
    assert server.histories[1] == [("user", "two")]


def test_where_nothing_can_be_drawn_over_the_reason_of_a_wait_is_told_once() -> None:
    busy = Refusal(429, "Full.", headers={"Retry-After": "0.01"})
    screen = talk(ScriptedChat(busy, busy, Reply(["fine"])), "hi")
    assert screen.count("The server's queue is full; it takes new questions again soon. Trying again in 1 s") == 1
    assert "fine" in screen


def test_an_empty_answer_is_said_to_be_empty() -> None:
    assert "The answer was empty." in talk(ScriptedChat(Reply([])), "hello")


@pytest.mark.parametrize("word", ["/quit", "/exit"])
def test_quit_and_exit_leave(word: str) -> None:
    server = ScriptedChat(Reply(["never"]))
    talk(server, word, "not sent")
    assert server.requests == []


def test_empty_lines_and_mistyped_commands_are_not_sent() -> None:
    server = ScriptedChat(Reply(["never"]))
    screen = talk(server, "", "   ", "/hepl", "/sett temperature 1", "/nonsense", "/help")
    assert "There is no command /hepl; did you mean /help?" in screen
    assert "did you mean /set?" in screen
    assert "There is no command /nonsense;" in screen
    for name in COMMANDS:
        assert f"\n{name}" in screen
    assert server.requests == []


@pytest.mark.parametrize("question", ["/ is which folder?", "/etc/passwd holds what?", "/bin/x"])
def test_a_question_that_only_begins_with_a_slash_is_sent(question: str) -> None:
    server = ScriptedChat(Reply(["It is the root."]))
    talk(server, question)
    assert server.histories[0] == [("user", question)]


def test_control_characters_of_the_model_never_reach_the_terminal() -> None:
    screen = talk(ScriptedChat(Reply(["safe\x1b[2J\x07\x9b1m\ttext\n[bold]"])), "hi")
    assert not {"\x1b", "\x07", "\x9b"} & set(screen)
    assert "\ttext\n[bold]" in screen


def test_control_characters_of_an_old_answer_or_an_error_never_reach_the_terminal() -> None:
    old = [Turn("q", "old\x1b[2J")]
    screen = talk(ScriptedChat(Refusal(400, "No\x1b]0;x\x07.")), "/history", "hi", history=History("", old))
    assert "old[2J" in screen
    assert "No]0;x." in screen
    assert not {"\x1b", "\x07"} & set(screen)


def test_a_footnote_stands_under_the_figures() -> None:
    def footnote(answer: Answer) -> str:
        return f"note on {answer.text}"

    assert "note on fine" in talk(ScriptedChat(Reply(["fine"])), "hi", footnote=footnote)


def test_the_oldest_turns_are_said_to_be_no_longer_sent() -> None:
    old = [Turn("word " * 900, "word " * 900) for _ in range(3)]
    server = ScriptedChat(Reply(["fine"]))
    screen = talk(server, "hi", "/history", history=History("", old))
    assert "The context is full: the oldest turns (2) are no longer sent." in screen
    assert "2 (no longer sent)> word" in screen
    assert len(server.histories[0]) == 3


def test_a_chinese_user_reads_chinese() -> None:
    screen = talk(ScriptedChat(Reply(["好"]), Reply(["半", CUT])), "你好", "/help", "再来", language="zh")
    for words in ("首 token", "缓存命中 29%", "开始新对话", "回答中断：服务器断开了连接。"):
        assert words in screen


# --- commands ---


def test_new_forgets_all_but_the_system_message() -> None:
    server = ScriptedChat(Reply(["one"]), Reply(["two"]))
    talk(server, "first", "/new", "second", history=History("Be brief."))
    assert server.histories[1] == [("system", "Be brief."), ("user", "second")]


def test_the_system_message_is_shown_set_and_removed() -> None:
    server = ScriptedChat(Reply(["fine"]))
    screen = talk(server, "/system", "/system Speak {plainly}.", "one", "/system none", "/new", "two")
    assert screen.count("There is no system message.") == 2
    assert "System message: Speak {plainly}." in screen
    assert server.histories == [[("system", "Speak {plainly}."), ("user", "one")], [("user", "two")]]


def test_settings_are_shown_with_their_defaults_changed_and_reset(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    server = ScriptedChat(Reply(["fine"]))
    screen = talk(
        server,
        *("/set", "/set temperature 0", "/set seed 7", f"/set json_schema {schema}", "one"),
        *("/set seed default", "two", "/set default", "three"),
    )
    assert "temperature = 0.2 (the model's default)" in screen
    assert "min_p = the server's default" in screen
    fields = [{"temperature", "seed", "response_format"}, {"temperature", "response_format"}, set[str]()]
    always = {"model", "messages", "stream", "stream_options"}
    assert [set(request) - always for request in server.requests] == fields


def test_wrong_settings_are_told_and_change_nothing(tmp_path: Path) -> None:
    server = ScriptedChat(Reply(["fine"]))
    lines = ("/set warmth 1", "/set seed 1.5", "/set top_p nan", f"/set json_schema {tmp_path / 'none'}", "hi")
    screen = talk(server, *lines)
    for sentence in (
        "There is no setting warmth;",
        "seed takes a whole number.",
        "top_p takes a number.",
        "json_schema takes a file with a JSON schema.",
    ):
        assert sentence in screen
    assert set(server.requests[0]) == {"model", "messages", "stream", "stream_options"}


def test_the_model_is_changed_to_one_that_the_server_has() -> None:
    server = ScriptedChat(Reply(["fine"]))
    server.models = {"data": [{"id": "demo", "max_model_len": 4096}, {"id": "other"}]}
    screen = talk(server, "/model", "/model third", "/model other", "hi")
    assert "* demo, 4,096 tokens" in screen
    assert "  other" in screen
    assert "The server has no model third;" in screen
    assert server.requests[0]["model"] == "other"


def test_regenerate_asks_the_last_question_in_its_own_place() -> None:
    server = ScriptedChat(Reply(["a"]), Reply(["b"]), Reply(["c"]))
    talk(server, "/regenerate", "one", "two", "/regenerate", "/history")
    assert server.histories[2] == server.histories[1] == [("user", "one"), ("assistant", "a"), ("user", "two")]


def test_an_answer_that_fails_to_come_again_leaves_the_old_one() -> None:
    server = ScriptedChat(Reply(["first"]), Refusal(400, "No."), Reply(["next"]))
    talk(server, "one", "/regenerate", "two")
    assert server.histories[2] == [("user", "one"), ("assistant", "first"), ("user", "two")]


def test_edit_offers_the_question_and_drops_what_came_after_it() -> None:
    server = ScriptedChat(Reply(["answer"]))
    offered: list[str] = []

    def change(default: str) -> str:
        offered.append(default)
        return default + "!"

    screen = talk(server, "/edit", "one", "two", "/edit", change, "/edit 1", change, "/edit 9", "/edit x")
    assert offered == ["two", "one"]
    assert server.histories[2][-1] == ("user", "two!")
    assert server.histories[3] == [("user", "one!")]
    assert "There is no question 9;" in screen


def test_an_edit_that_is_given_up_changes_nothing() -> None:
    server = ScriptedChat(Reply(["answer"]))
    talk(server, "one", "/edit", KeyboardInterrupt(), "two")
    assert server.histories[1] == [("user", "one"), ("assistant", "answer"), ("user", "two")]


def test_files_go_with_the_next_question_and_are_counted(tmp_path: Path) -> None:
    code, data = tmp_path / "sort.py", tmp_path / "data.bin"
    code.write_text("def sort(): ...\n")
    data.write_bytes(b"\0\1")
    server = ScriptedChat(Refusal(400, "No."), Reply(["fine"]))
    lines = ("/file", f"/file {data}", "/file /no/such", f"/file {code}", "explain", "explain it", "next")
    screen = talk(server, *lines)
    for sentence in (
        "No file goes with the next question.",
        "data.bin is not a text file.",
        "/no/such cannot be read: No such file or directory.",
        "sort.py goes with the next question (3 tokens).",
    ):
        assert sentence in screen
    asked = "sort.py\n```python\ndef sort(): ...\n```\n\nexplain"
    assert [history[-1][1] for history in server.histories] == [asked, f"{asked} it", "next"]


def test_too_large_and_too_many_files_are_refused(tmp_path: Path) -> None:
    large, small = tmp_path / "large.txt", tmp_path / "small.txt"
    large.write_text("x" * (LARGEST + 1))
    small.write_text("x")
    screen = talk(ScriptedChat(Reply(["fine"])), f"/file {large}", *[f"/file {small}"] * (MOST + 1), "/file none")
    assert "large.txt is larger than 512 KiB." in screen
    assert screen.count("small.txt goes with") == MOST
    assert f"At most {MOST} files" in screen
    assert "No file goes with" in screen


def test_a_chat_is_kept_found_and_gone_on_with(tmp_path: Path) -> None:
    saved = SavedChats(tmp_path / "chats")
    first = ScriptedChat(Reply(["Quicksort is fast."]))
    talk(first, "sort?", "/save My sorting", "/new", "other", saved=saved, history=History("Be brief."))
    [file, other] = sorted((tmp_path / "chats").iterdir())
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "chats").stat().st_mode & 0o777 == 0o700
    assert [chat.title for chat in saved.all()] == ["other", "My sorting"]

    second = ScriptedChat(Reply(["Go on."]))
    screen = talk(second, "/load", "/search QUICKsort", "/search nowhere", "/load 7", "/load 2", "more", saved=saved)
    assert "  1  20" in screen
    assert "My sorting: …Quicksort is fast.…" in screen
    assert "Nothing found for nowhere." in screen
    assert "There is no conversation 7;" in screen
    assert second.histories[0] == [
        *(("system", "Be brief."), ("user", "sort?")),
        *(("assistant", "Quicksort is fast."), ("user", "more")),
    ]
    assert len(saved.all()) == 2  # it went on in its own file
    assert other.exists()


def test_a_chat_that_cannot_be_kept_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    screen = talk(ScriptedChat(Reply(["fine"])), "one", "two", "/save", saved=SavedChats(tmp_path / "file"))
    assert screen.count("This conversation cannot be kept:") == 1
    assert "not kept (--no-save)" in screen


def test_files_that_are_no_chats_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "20260101-1.json").write_text("{}")
    (tmp_path / "20260101-2.json").write_bytes(b"\xff")
    assert SavedChats(tmp_path).all() == []


def test_export_writes_markdown_and_never_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    server = ScriptedChat(Reply(["**Hi**"]))
    lines = (f"/export {path}", "hello", f"/export {path}", f"/export {path}", f"/export {tmp_path}/no/x.md")
    screen = talk(server, *lines, history=History("Be brief."))
    assert path.read_text() == "# hello\n\n> Be brief.\n\n## You\n\nhello\n\n## demo\n\n**Hi**\n"
    for sentence in ("Nothing has been said yet.", "exists already; name another file.", "No such file or directory"):
        assert sentence in screen
