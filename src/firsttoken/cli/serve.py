"""`firsttoken serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.grouped_options import GroupedCommand
from firsttoken.cli.options import engine_config, serve_options, server_config
from firsttoken.config import EngineConfig, ServerConfig

if TYPE_CHECKING:
    from firsttoken.cli.children import Commands
    from firsttoken.cli.page_process import Page

Find = Callable[[Callable[[str], None]], tuple[str, str]]
"""Finds the model, telling what it must say: its name and its local path. It may take as long as a download."""
StartPage = Callable[[str, Callable[[str], None]], Callable[[], "Page"]]
"""Given the server's URL and whom to tell, gives what starts the chat page, and starts it again."""


@click.command(cls=GroupedCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False)
@serve_options
def serve(
    model: str | None,
    hub: str,
    revision: str | None,
    download_dir: str | None,
    ui: bool,
    ui_host: str | None,
    ui_port: int | None,
    **values: Any,
) -> int:
    """Serve MODEL over an OpenAI-compatible HTTP API.

    MODEL is a folder with config.json and safetensors, a .gguf file, a repository such as Qwen/Qwen3-4B-Instruct-2507,
    or `demo`. Without MODEL: the 4B model where a GPU can hold it, else the demo.
    """

    def find(note: Callable[[str], None]) -> tuple[str, str]:
        from firsttoken.model.hub import resolve

        name = model or _choose(note)
        weights = values["load_format"] != "dummy"
        return name, str(resolve(name, hub=hub, revision=revision, cache_dir=download_dir, weights=weights))

    server = server_config(values)
    page = None
    if ui:
        from firsttoken.cli.page_process import LOOPBACK, PageConfig, page_beside

        key = server.api_keys[0] if server.api_keys else None
        page = page_beside(PageConfig(host=ui_host or LOOPBACK, port=ui_port, api_key=key), "--ui-port")
    elif ui_host or ui_port:
        raise click.UsageError("--ui-host and --ui-port say where the chat page listens; add --ui to have one.")
    return run_server(engine_config(values), server, find, page=page)


def run_server(
    engine: EngineConfig,
    server: ServerConfig,
    find: Find,
    commands: Commands | None = None,
    *,
    page: StartPage | None = None,
    grace: float = 8.0,
) -> int:
    """Runs a server to its end and returns the exit code. The configs lack the model, which `find` gives.

    The port is taken first and the children are started next, so that they import while the model is looked for.
    """
    from firsttoken.cli.listener import listen, url_of
    from firsttoken.cli.summary import Report, process_birth
    from firsttoken.cli.supervisor import Supervisor, stop_signals_raise

    launched = process_birth()
    with listen(server.host, server.port) as listener:
        url = url_of(listener, server.host)
        report = Report(url, launched)
        start_page = page(url, report.note) if page else None
        with Supervisor(server, listener, report, commands, page=start_page, grace=grace) as supervisor:
            try:
                with stop_signals_raise():
                    supervisor.start()
                    report.spawned()
                    name, path = find(report.note)
            except KeyboardInterrupt as stopped:
                report.note("Stopped before the server was ready; what was downloaded is kept.")
                return 128 + int(stopped.args[0])
            supervisor.configure(replace(engine, model=name, path=path), replace(server, tokenizer_path=path))
            return supervisor.run()


def _choose(note: Callable[[str], None]) -> str:
    """The model to run where none was named; says which and why."""
    from firsttoken.machine.gpu import read_gpus
    from firsttoken.model.hub import default_model

    name, why = default_model(max((gpu.memory_total for gpu in read_gpus()), default=None))
    note(why)
    return name
