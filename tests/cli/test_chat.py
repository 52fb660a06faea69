"""`firsttoken chat` as a process: in a terminal, from a pipe, and against servers that are not there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chat.scripted_chat import CUT, HANG, Reply, ScriptedChat, in_thread
from tests.cli.fake_serve import until
from tests.cli.pseudo_terminal import in_terminal

COMMAND = [sys.executable, "-m", "firsttoken", "chat", "--url"]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path), "LANG": "C.UTF-8", "LC_ALL": "", "NO_COLOR": ""}


def pipe(question: bytes, url: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, url, *options], input=question, capture_output=True, timeout=30, env=os.environ | environment
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_ctrl_c_stops_the_answer_and_keeps_it_and_ctrl_d_leaves(home: dict[str, str], tmp_path: Path) -> None:
    server = ScriptedChat(Reply(["Half an ", "answer", HANG]), Reply(["The **rest**."]))
    with in_thread(server), in_terminal([*COMMAND, server.url], **home) as terminal:
        terminal.wait_for(r"demo at http\S+/v1\. Type a message")
        terminal.wait_for(">")
        terminal.type("go\r")
        terminal.wait_for("Half an answer")
        terminal.type("\x03")
        terminal.wait_for(r"TTFT \d+ ms .* ≈3 tokens")
        terminal.wait_for(r"Stopped\.")
        until(lambda: server.left == 1)
        terminal.wait_for(">")
        terminal.type("go on\r")
        terminal.wait_for(r"The rest\.")
        terminal.wait_for(r"3 tokens · prompt 7, 29% cached")
        terminal.wait_for(">")
        terminal.type("\x04")
        assert terminal.process.wait(20) == 0
    assert server.histories[1] == [("user", "go"), ("assistant", "Half an answer"), ("user", "go on")]
    [kept] = (tmp_path / "firsttoken" / "terminal-chats").iterdir()
    assert "Half an answer" in kept.read_text()


def test_a_chat_that_is_killed_leaves_the_terminal_as_it_was(home: dict[str, str]) -> None:
    with (
        in_thread(ScriptedChat(Reply(["Half", HANG]))) as server,
        in_terminal([*COMMAND, server.url], **home) as terminal,
    ):
        terminal.wait_for(">")
        terminal.type("go\r")
        terminal.wait_for("Half")
        assert not terminal.echoes
        terminal.process.terminate()
        assert terminal.process.wait(20) == 128 + signal.SIGTERM
        assert terminal.echoes


def test_nothing_is_kept_where_that_is_not_wanted(home: dict[str, str], tmp_path: Path) -> None:
    server = ScriptedChat(Reply(["Fine."]))
    with in_thread(server), in_terminal([*COMMAND, server.url, "--no-save"], **home) as terminal:
        terminal.wait_for(">")
        terminal.type("hi\r")
        terminal.wait_for(r"Fine\.")
        terminal.type("/quit\r")
        assert terminal.process.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_chinese_user_reads_chinese_from_the_first_line_on(home: dict[str, str]) -> None:
    server = ScriptedChat(Reply(["好的。"]))
    with in_thread(server), in_terminal([*COMMAND, server.url], **home | {"LANG": "zh_CN.UTF-8"}) as terminal:
        terminal.wait_for("直接输入消息")
        terminal.wait_for(">")
        terminal.type("你好\r")
        terminal.wait_for("好的。")
        terminal.wait_for(r"首 token \d+ ms .*缓存命中 29%")
        terminal.type("\x04")
        assert terminal.process.wait(20) == 0
    assert server.histories == [[("user", "你好")]]


def test_a_pipe_is_one_question_whose_answer_alone_goes_to_standard_output() -> None:
    server = ScriptedChat(Reply(["**Hi** ", "你好\x1b[2J"]))
    with in_thread(server):
        done = pipe("two\nlines 你好\n".encode(), server.url, "--system", "Be brief.", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "**Hi** 你好[2J\n"
    assert "\x1b" not in done.stderr
    assert "3 tokens · prompt 7, 29% cached" in done.stderr
    assert server.histories == [[("system", "Be brief."), ("user", "two\nlines 你好")]]
    assert server.requests[0]["temperature"] == 0


def test_a_pipe_whose_answer_is_cut_fails_with_one_sentence() -> None:
    server = ScriptedChat(Reply(["Half", CUT]))
    with in_thread(server):
        done = pipe(b"go", server.url)
    assert (done.returncode, done.stdout) == (1, "Half\n")
    assert "The answer was cut off: the server closed the connection." in done.stderr


@pytest.mark.parametrize(("language", "sentence"), [("C", "No server answers at"), ("zh_CN.UTF-8", "没有服务在应答")])
def test_no_server_is_one_sentence_in_the_users_language(language: str, sentence: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = pipe(b"go", url, LC_ALL=language, PYTHONUTF8="1")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert sentence in line


def test_an_empty_pipe_is_a_mistake_that_is_told() -> None:
    with in_thread(ScriptedChat(Reply(["never"]))) as server:
        done = pipe(b" \n", server.url)
    assert done.returncode == 2
    assert "There is no question on standard input." in done.stderr
