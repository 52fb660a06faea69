"""Starting and stopping a server for the length of a command, with a fake server in its place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from firsttoken.cli.local_server import ServerFailed, free_port, local_server

FAKE = """
import http.server, json, sys, subprocess
port = int(sys.argv[sys.argv.index("--port") + 1])
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
answers = [(503, "reading"), (503, "reading"), (503, "warming"), (200, "")]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, phase = answers.pop(0) if len(answers) > 1 else answers[0]
        body = json.dumps({"phase": phase, "args": sys.argv[1:], "child": child.pid}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


# A child that nothing but a signal of its own ends
STUBBORN = FAKE.replace("sys.stdin.read()", "import time; time.sleep(20)")


def fake(code: str) -> Sequence[str]:
    return (sys.executable, "-c", code)


def is_running(pid: int) -> bool:
    """Whether a process exists and is not merely waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not is_running(pid):
            return True
        time.sleep(0.02)
    return False


def wait_refused(url: str) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            httpx.get(url, trust_env=False)
        except httpx.HTTPError:
            return True
    return False


def test_the_server_runs_for_the_block_and_not_a_moment_longer() -> None:
    phases: list[str] = []
    with local_server(["demo"], port=free_port(0), progress=phases.append, command=fake(STUBBORN)) as server:
        said = httpx.get(server.url, trust_env=False).json()
    assert said["args"][:3] == ["demo", "--host", "127.0.0.1"]
    assert phases == ["reading", "warming"]
    assert wait_gone(said["child"])
    assert wait_refused(server.url)


def test_an_error_inside_the_block_stops_the_server_too() -> None:
    children: list[int] = []

    def fail_inside() -> None:
        with local_server([], port=free_port(0), command=fake(FAKE)) as server:
            children.append(httpx.get(server.url, trust_env=False).json()["child"])
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert wait_gone(children[0])


def test_a_server_that_cannot_start_gives_its_own_sentence() -> None:
    code = "import sys; print('loading'); sys.exit('Error: The model needs 9.0 GB and 4.0 GB are free.')"
    with (
        pytest.raises(ServerFailed, match=r"^The model needs 9\.0 GB") as caught,
        local_server([], port=free_port(0), command=fake(code)),
    ):
        pass
    assert "loading" not in str(caught.value)


def test_a_server_that_dies_without_a_word_shows_its_last_lines() -> None:
    with (
        pytest.raises(ServerFailed, match="status 3") as caught,
        local_server([], port=free_port(0), command=fake("import sys; print('the last thing'); sys.exit(3)")),
    ):
        pass
    assert "the last thing" in str(caught.value)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_server_never_outlives_the_command(tmp_path: Path, number: signal.Signals) -> None:
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux tells a child that its parent was killed")
    script = tmp_path / "command.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        from firsttoken.cli.local_server import local_server, free_port
        with local_server([], port=free_port(0), command=(sys.executable, {str(tmp_path / "fake.py")!r})) as server:
            print(server.url, flush=True)
            time.sleep(60)
        """)
    )
    (tmp_path / "fake.py").write_text(FAKE)
    command = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    with command.stdout:
        url = command.stdout.readline().strip()
    command.send_signal(number)
    command.wait(10)
    assert wait_refused(url)


def test_a_taken_port_is_replaced_and_a_free_one_kept() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port
