"""`firsttoken ui`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from firsttoken.cli.option_types import IntRange

if TYPE_CHECKING:
    from firsttoken.cli.page_process import Page, PageConfig


@click.command()
@click.argument("model", required=False)
@click.option("--url", help="A server that runs already.  [default: http://127.0.0.1:8000]")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="The server's key.  [env: OPENAI_API_KEY]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the page listens.")
@click.option("--port", type=IntRange(1, 65535), help="The page's port.  [default: 8080, or the next free one]")
@click.option("--allow-origin", multiple=True, metavar="URL", help="Another address under which browsers may use it.")
@click.option("--data-dir", type=click.Path(file_okay=False), help="Where its history is kept.")
@click.option("--setup", is_flag=True, help="Only set the page up: install what it needs, in a place of its own.")
def ui(
    model: str | None,
    url: str | None,
    api_key: str | None,
    host: str,
    port: int | None,
    allow_origin: tuple[str, ...],
    data_dir: str | None,
    setup: bool,
) -> int:
    """Open a chat page for your browser.

    With MODEL (a folder, a .gguf file, a repository, or `demo`) a server is started beside it, and both end together.
    Without, the page talks to the server at --url. The first start installs what the page needs into an environment
    of its own, which the server's never meets. Listening elsewhere than on this machine takes a password in
    FIRSTTOKEN_UI_PASSWORD.
    """
    from firsttoken.cli.page_environment import page_environment, set_up
    from firsttoken.cli.page_process import PageConfig, page_starter

    if setup:
        environment = page_environment()
        if environment.is_ready:
            click.echo(f"The chat page is set up in {environment.folder}.")
        set_up(environment)
        return 0
    if model and url:
        raise click.UsageError("MODEL starts a server and --url names one that runs: give one of them.")
    page = PageConfig(host=host, port=port, api_key=api_key, data_dir=data_dir, origins=allow_origin)
    if model:
        return _with_server(model, page)
    set_up(page_environment())
    server = url or "http://127.0.0.1:8000"
    return run_page(page_starter(page.with_port(click.echo, "--port"), server), server)


def _with_server(model: str, page: PageConfig) -> int:
    """`serve MODEL --ui` on the first free port from 8000 up."""
    from firsttoken.cli.listener import free_port_from
    from firsttoken.cli.page_process import page_beside
    from firsttoken.cli.serve import run_server
    from firsttoken.config import EngineConfig, ServerConfig
    from firsttoken.model.hub import resolve

    def find(note: Callable[[str], None]) -> tuple[str, str]:
        return model, str(resolve(model))

    server = ServerConfig(tokenizer_path="", port=free_port_from("127.0.0.1", 8000) or 0)
    return run_server(EngineConfig(model="", path=""), server, find, page=page_beside(page, "--port"))


def run_page(start: Callable[[], Page], server: str) -> int:
    """Runs the page alone until a signal ends it or it dies; returns the exit code. `server` is whom it talks to."""
    import select

    from firsttoken.cli.supervisor import stop_signals_raise

    page: Page | None = None
    try:
        with stop_signals_raise():
            page = start()
            told = False
            while page.read_status():
                if page.address and not told:
                    told = True
                    click.echo(f"The chat page is at {page.address}, for the server at {server}. Ctrl-C ends it.")
                select.select([page.status], [], [])
            code = page.outcome()
            if code <= 0:  # else it has said on stderr why
                click.echo(f"Error: {page.death()}.", err=True)
            return code if code > 0 else 1
    except KeyboardInterrupt:
        return 0
    finally:
        if page:
            page.end()
