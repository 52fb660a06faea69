"""What the page is started with, and what it must not be started with."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken.chat.data_folder import data_folder
from firsttoken.chat.loopback import is_loopback
from firsttoken.errors import ConfigError

PASSWORD = "FIRSTTOKEN_UI_PASSWORD"
SHORTEST_PASSWORD = 8  # characters


@dataclass(frozen=True, slots=True)
class Options:
    """Where the page listens, whom it talks to, and who may see it."""

    url: str  # the server's root or its /v1
    api_key: str | None  # what that server wants
    host: str
    port: int
    data_dir: Path  # history, the secret that signs sessions
    password: str | None  # None: whoever reaches the page is its one user
    origins: tuple[str, ...] = ()  # other addresses under which browsers may use it, as scheme://host[:port]

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Secrets come from the environment, where other users' `ps` does not show them. Raises ConfigError."""
    parser = argparse.ArgumentParser(prog="python -m firsttoken.chat.page", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server's address")
    parser.add_argument("--host", default="127.0.0.1", help="where the page listens")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--data-dir", type=Path, default=data_folder(environment) / "chat", help="history and sessions")
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="another address of the page"
    )
    given = parser.parse_args(arguments)
    password = environment.get(PASSWORD) or None
    if password is not None and len(password) < SHORTEST_PASSWORD:
        raise ConfigError(f"{PASSWORD} is shorter than {SHORTEST_PASSWORD} characters; choose a longer one.")
    if password is None and not is_loopback(given.host):
        raise ConfigError(
            f"On {given.host} others reach the page: set a password in {PASSWORD}"
            f" (such as {secrets.token_urlsafe(12)}), or leave --host out to keep it on this machine."
        )
    return Options(
        url=given.url,
        api_key=environment.get("OPENAI_API_KEY") or None,
        host=given.host,
        port=given.port,
        data_dir=given.data_dir.expanduser().resolve(),
        password=password,
        origins=tuple(origin.rstrip("/") for origin in given.allow_origin),
    )
