"""The chat page beside a server and alone, with a stub of the page: addresses, deaths, and that nothing is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.fake_serve import Launched, alive, kill, launch, until

from firsttoken.cli.listener import listen
from firsttoken.cli.page_process import PORT, PageConfig
from firsttoken.errors import ConfigError

ALONE = """
import os, sys
from firsttoken.cli.page_process import Page
from firsttoken.cli.ui import run_page
command = (sys.executable, "-m", "firsttoken.tied", "tests.cli.stub_page", sys.argv[1])
sys.exit(run_page(lambda: Page(command, os.environ), "http://the-server"))
"""


def page_of(server: Launched) -> int:
    [page] = server.children()["tied"]
    return page


def wait_both(server: Launched) -> tuple[str, str]:
    """The addresses of the API and of the page."""
    assert server.popen.stdout
    url = page = None
    while not (url and page):
        server.out += server.popen.stdout.readline()
        url = re.search(r"serves fake at (\S+)/v1", server.out)
        page = re.search(r"The chat page is at (\S+)", server.out)
    return url[1], page[1]


def listens(address: str) -> bool:
    host, port = address.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_both_addresses_and_ends_both(number: signal.Signals) -> None:
    with launch(page="good") as server:
        url, page = wait_both(server)
        assert listens(url)
        assert listens(page)
        children = [pid for pids in server.children().values() for pid in pids]
        server.signal(number)
        assert server.finish() == 0
        assert not any(alive(pid) for pid in children)
        assert not listens(page)
    assert "Traceback" not in server.err


def test_a_page_that_will_not_end_is_killed_with_the_server() -> None:
    with launch(page="stubborn") as server:
        _, page = wait_both(server)
        server.signal(signal.SIGTERM)
        assert server.finish() == 0
        assert not listens(page)


def test_a_page_does_not_outlive_a_killed_server() -> None:
    with launch(page="stubborn") as server:
        wait_both(server)
        page = page_of(server)
        kill(server.popen.pid)
        until(lambda: not alive(page))


def test_a_page_that_cannot_start_ends_the_server_with_both_sentences() -> None:
    with launch(page="broken") as server:
        assert server.finish() == 1
    assert "Error: The page is broken; choose another." in server.err
    assert "Error: The chat page ended with status 1 before it was ready." in server.err


def test_a_page_that_dies_is_started_again_and_the_server_goes_on() -> None:
    with launch(page="good") as server:
        url, _ = wait_both(server)
        first = page_of(server)
        kill(first)
        until(lambda: server.children()["tied"] not in ([], [first]))
        assert listens(url)
        server.signal(signal.SIGTERM)
        assert server.finish() == 0
    assert "The chat page was killed (signal 9)" in server.err
    assert "it is started again" in server.err


def alone(kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ALONE, kind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def test_the_page_alone_says_where_it_is_and_ends_well_with_a_signal() -> None:
    with alone("good") as command:
        assert command.stdout
        line = command.stdout.readline()
        found = re.fullmatch(r"The chat page is at (\S+), for the server at http://the-server. Ctrl-C ends it.\n", line)
        assert found
        assert listens(found[1])
        command.send_signal(signal.SIGINT)
        assert command.wait(10) == 0
        assert not listens(found[1])


def test_the_page_alone_fails_with_its_own_sentence() -> None:
    with alone("broken") as command:
        _, said = command.communicate(timeout=20)
    assert command.returncode == 1
    assert said == "Error: The page is broken; choose another.\n"


def test_the_page_alone_that_is_killed_is_told() -> None:
    with alone("good") as command:
        assert command.stdout
        command.stdout.readline()
        [page] = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
        kill(int(page))
        _, said = command.communicate(timeout=20)
    assert command.returncode == 1
    assert said.startswith("Error: The chat page was killed (signal 9)")


def test_a_taken_port_that_was_asked_for_is_one_sentence_with_a_free_one() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^Port {port} on 127.0.0.1 is taken; add --ui-port \d+, which is free"):
            PageConfig(port=port).with_port(print, "--ui-port")


def test_the_usual_port_gives_way_to_the_next_free_one_and_says_so() -> None:
    said: list[str] = []
    with listen("127.0.0.1", 0) as taken:
        chosen = PageConfig().with_port(said.append, "--port").port
        assert chosen is not None
        assert chosen >= PORT
        assert bool(said) == (chosen != PORT)
        assert PageConfig(port=chosen).with_port(print, "--port").port == chosen
        assert chosen != taken.getsockname()[1]


def test_what_the_page_is_told_becomes_its_arguments() -> None:
    config = PageConfig(host="::1", port=9, data_dir="here", origins=("https://a", "https://b"))
    assert config.arguments("http://s") == [
        *("--url", "http://s", "--host", "::1", "--port", "9", "--data-dir", "here"),
        *("--allow-origin", "https://a", "--allow-origin", "https://b"),
    ]


def test_a_tied_module_ends_with_its_supervisors_end_of_the_pipe(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("import sys, time; print(sys.argv[1:], flush=True); time.sleep(60)")
    command = [sys.executable, "-m", "firsttoken.tied", "endless", "a", "b"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == "['a', 'b']\n"
        child.stdin.close()
        assert child.wait(10) == 1
