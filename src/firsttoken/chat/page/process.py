"""The page's process: an environment that Chainlit cannot be led astray by, then one uvicorn."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from firsttoken.chat.page.chainlit_files import write_config, write_words
from firsttoken.chat.page.options import Options
from firsttoken.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

# Chainlit acts on these, wherever they come from: databases, bots, other ways to log in.
_FOREIGN = ("CHAINLIT_", "DATABASE_URL", "LITERAL_", "OAUTH_", "SLACK_", "DISCORD_", "TEAMS_", "TRACELOOP_", "OTEL_")


def run(options: Options) -> None:
    """Serves until a signal ends it. Raises ConfigError."""
    root = options.data_dir / "chainlit"
    try:
        write_config(root, options)
        secret = _secret(options.data_dir / "secret")
    except OSError as error:
        raise ConfigError(f"Nothing can be kept in {options.data_dir} ({error}); name another --data-dir.") from error
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        del os.environ[name]
    os.environ |= {
        "CHAINLIT_APP_ROOT": str(root),
        "CHAINLIT_ENV_FILE": str(root / "none"),  # no .env of the folder that the page happens to be started in
        "CHAINLIT_AUTH_SECRET": secret,
        "CHAINLIT_AUTH_COOKIE_NAME": f"firsttoken_{options.port}",  # browsers share cookies between ports
        "CHAINLIT_COOKIE_SAMESITE": "strict" if options.loopback else "lax",
        "TRACELOOP_TELEMETRY": "false",
    }
    try:
        import chainlit
    except ImportError as error:
        raise ConfigError(
            f"The chat page needs Chainlit ({error}): run `firsttoken ui --setup`, which installs it."
        ) from error
    from firsttoken.chat.page.callbacks import Callbacks
    from firsttoken.chat.page.data_layer import History
    from firsttoken.chat.page.live import LiveAnswers
    from firsttoken.chat.page.service import Service
    from firsttoken.chat.page.store import Store
    from firsttoken.chat.page.web import Web

    logging.getLogger("chainlit").setLevel(logging.ERROR)  # it warns of what this page leaves out on purpose
    write_words(root, Path(chainlit.__file__).parent / "translations")
    live = LiveAnswers()
    service = Service(options, History(Store(options.data_dir / "chats.sqlite3"), live), live)
    Callbacks(service).install()
    server = _server(Web(service).app(), options)
    server.run()
    if not server.started:
        sys.exit(1)


def _server(app: ASGIApp, options: Options) -> uvicorn.Server:
    import uvicorn

    class Announcing(uvicorn.Server):
        """Prints its address once it listens: whoever started the page waits for that line."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                print(_address(options), flush=True)

    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level="error",
        timeout_graceful_shutdown=1,  # open tabs would keep it up
    )
    return Announcing(config)


def _address(options: Options) -> str:
    host = socket.gethostname() if options.host in ("0.0.0.0", "::") else options.host
    return f"http://[{host}]:{options.port}" if ":" in host else f"http://{host}:{options.port}"


def _secret(path: Path) -> str:
    """What signs the sessions; kept, so that a restart logs nobody out."""
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
    return path.read_text().strip()
