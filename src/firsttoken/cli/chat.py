"""`firsttoken chat`."""

from __future__ import annotations

import click


@click.command()
@click.argument("model", required=False)
@click.option("--url", help="A server that runs already, such as http://127.0.0.1:8000.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="The server's key.  [env: OPENAI_API_KEY]")
@click.option("--system", help="A system message that opens every conversation.")
@click.option("--temperature", type=click.FloatRange(0), help="0 is greedy; the server's default otherwise.")
@click.option("--max-tokens", type=click.IntRange(1), help="The longest answer, in tokens.")
def chat(
    model: str | None,
    url: str | None,
    api_key: str | None,
    system: str | None,
    temperature: float | None,
    max_tokens: int | None,
) -> None:
    """Talk to a model in this terminal.

    With MODEL (a folder, a .gguf file, a repository, or `demo`) a server is started for the length of the chat. With
    --url a running one is used, and MODEL is the name to ask it for. With neither, http://127.0.0.1:8000 is tried.
    """
    from contextlib import ExitStack

    from rich.console import Console

    from firsttoken.chat.client import ChatClient, Options
    from firsttoken.chat.line import terminal_line
    from firsttoken.chat.terminal import TerminalChat
    from firsttoken.cli.local_server import free_port, local_server
    from firsttoken.model.hub import resolve

    console = Console(highlight=False)
    with ExitStack() as stack:
        if model is not None and url is None:
            resolve(model)  # here, and not in the server, whose progress nobody sees
            with console.status("Starting the server") as status:
                server = stack.enter_context(
                    local_server([model], port=free_port(8000), progress=lambda phase: status.update(phase))
                )
            url, model = server.url, None
        client = ChatClient(url or "http://127.0.0.1:8000", api_key=api_key)
        name = model or client.model()
        console.print(f"{name} at {client.url}", style="bold", markup=False)
        TerminalChat(
            client,
            name,
            console=console,
            read_line=terminal_line(),
            system=system,
            options=Options(temperature=temperature, max_tokens=max_tokens),
        ).run()
