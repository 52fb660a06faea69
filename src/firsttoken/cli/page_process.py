"""The chat page as a child process: what it is started with, when it listens, how it ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from firsttoken.cli.children import Child
from firsttoken.cli.listener import free_port_from, listen

MODULE = "firsttoken.chat.page"
LOOPBACK = "127.0.0.1"
PORT = 8080
_GOODBYE = 3.0  # seconds to end in an orderly way


@dataclass(frozen=True, slots=True, kw_only=True)
class PageConfig:
    """Where the page listens and what it may be told. Its password comes from the environment."""

    host: str = LOOPBACK
    port: int | None = None  # None: 8080, or the next free one
    api_key: str | None = None  # of the server
    data_dir: str | None = None
    origins: tuple[str, ...] = ()

    def arguments(self, server_url: str) -> list[str]:
        assert self.port is not None
        given = ["--url", server_url, "--host", self.host, "--port", str(self.port)]
        if self.data_dir:
            given += ["--data-dir", self.data_dir]
        for origin in self.origins:
            given += ["--allow-origin", origin]
        return given

    def with_port(self, note: Callable[[str], None], flag: str) -> PageConfig:
        """With a port that nobody listens on. A taken one that was asked for is an error, whose sentence names `flag`;
        the usual one is replaced, and `note` is told. Raises ConfigError."""
        if self.port is not None:
            listen(self.host, self.port, flag).close()
            return self
        port = free_port_from(self.host, PORT)
        if port is None:
            listen(self.host, PORT, flag).close()  # raises, with the reason
            port = PORT
        if port != PORT:
            note(f"Port {PORT} on {self.host} is taken, so the chat page takes {port}.")
        return replace(self, port=port)


class Page(Child):
    """It prints its address once it listens. Its standard error is ours."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.status, theirs = os.pipe()
        os.set_blocking(self.status, False)
        try:
            super().__init__("The chat page", command, stdout=theirs, environment=environment)
        finally:
            os.close(theirs)
        self.address = ""

    def read_status(self) -> bool:
        """Takes in what it has printed; False at the pipe's end."""
        while True:
            try:
                data = os.read(self.status, 4096)
            except BlockingIOError:
                return True
            if not data:
                return False
            for word in data.decode(errors="replace").split():
                if not self.address and word.startswith(("http://", "https://")):
                    self.address = word

    def outcome(self) -> int:
        """The exit code of a page that has closed its output and so is about to end."""
        with suppress(subprocess.TimeoutExpired):
            return self._popen.wait(_GOODBYE)
        return 1

    def end(self) -> None:
        """Asks it to end, and kills it if it does not."""
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_GOODBYE)
        self.kill()

    def kill(self) -> None:
        super().kill()
        os.close(self.status)


def page_beside(config: PageConfig, flag: str) -> Callable[[str, Callable[[str], None]], Callable[[], Page]]:
    """For `run_server`: sets the page up where it is not yet, finds its port, and gives what starts it."""

    def start(server_url: str, note: Callable[[str], None]) -> Callable[[], Page]:
        from firsttoken.cli.page_environment import page_environment, set_up

        set_up(page_environment())
        return page_starter(config.with_port(note, flag), server_url)

    return start


def page_starter(config: PageConfig, server_url: str) -> Callable[[], Page]:
    """Starts the page in its own environment, which must be ready."""
    from firsttoken.cli.page_environment import page_environment

    home = page_environment()
    # -P and -s: neither the current folder nor the user's own packages may come into it
    command = [str(home.python), "-P", "-s", "-m", "firsttoken.tied", MODULE, *config.arguments(server_url)]
    variables = home.variables()
    if config.api_key:
        variables["OPENAI_API_KEY"] = config.api_key
    return lambda: Page(command, variables)
