"""`firsttoken serve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from firsttoken.cli.options import GroupedCommand, engine_config, serve_options, server_config


@click.command(cls=GroupedCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False)
@serve_options
def serve(model: str | None, hub: str, revision: str | None, **values: Any) -> int:
    """Serve MODEL over an OpenAI-compatible HTTP API.

    MODEL is a folder with config.json and safetensors, a .gguf file, a repository such as Qwen/Qwen3-4B-Instruct-2507,
    or `demo`. Without MODEL: the 4B model where a GPU can hold it, else the demo.
    """
    from firsttoken.cli.listener import listen, url_of
    from firsttoken.cli.summary import Report, process_birth
    from firsttoken.cli.supervisor import Supervisor, stop_signals_raise

    launched = process_birth()
    with listen(values["host"], values["port"]) as listener:
        report = Report(url_of(listener, values["host"]), launched)
        with Supervisor(server_config("", values), listener, report) as supervisor:
            try:
                with stop_signals_raise():
                    supervisor.start()
                    report.spawned()
                    name = model or _choose(report.note)
                    path = _find(name, hub, revision)
            except KeyboardInterrupt as stopped:
                report.note("Stopped before the server was ready; what was downloaded is kept.")
                return 128 + int(stopped.args[0])
            supervisor.configure(engine_config(name, path, values), server_config(path, values))
            return supervisor.run()


def _choose(note: Callable[[str], None]) -> str:
    """The model to run where none was named; says which and why."""
    from firsttoken.machine.gpu import read_gpus
    from firsttoken.model.hub import default_model

    name, why = default_model(max((gpu.memory_total for gpu in read_gpus()), default=None))
    note(why)
    return name


def _find(model: str, hub: str, revision: str | None) -> str:
    """The model's local path, fetched first where it must be."""
    from firsttoken.model.hub import resolve

    return str(resolve(model, hub=hub, revision=revision))
