"""`firsttoken demo`: the whole machinery once, on a model small enough for any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from firsttoken.cli.option_types import IntRange

if TYPE_CHECKING:
    from firsttoken.chat.answer import Answer
    from firsttoken.machine.ceilings import MemoryCeiling

QUESTION = "What is the capital of France, and what is it known for?"
ABOUT = (
    "The demo model is SmolLM2-135M-Instruct: 135 million parameters, often wrong, and it barely speaks Chinese. "
    "It is here to show the machinery, not to be clever."
)


@click.command()
@click.option("--port", type=IntRange(1, 65535), default=8000, show_default=True, help="Another if it is taken.")
def demo(port: int) -> None:
    """Ask the small demo model a first question, then chat.

    Downloads the model (once), starts a server, prints the answer with its figures and the memory ceiling beside
    them, and the API's address. In a terminal it goes on as a chat; elsewhere it ends and stops the server.
    """
    import asyncio
    import os
    import sys
    from contextlib import ExitStack

    from rich.console import Console

    from firsttoken.chat.chat_server import ChatServer
    from firsttoken.chat.commands import COMMANDS, Commands
    from firsttoken.chat.language import language_of_environment
    from firsttoken.chat.line import terminal_line
    from firsttoken.chat.settings import Settings
    from firsttoken.chat.terminal import TerminalChat
    from firsttoken.chat.views import quiet_keys
    from firsttoken.cli.foreground import own_foreground
    from firsttoken.cli.local_server import free_port, local_server
    from firsttoken.machine.ceilings import memory_ceiling
    from firsttoken.model.hub import resolve

    console = Console(highlight=False)
    console.print(ABOUT, style="dim", soft_wrap=not console.is_terminal)
    resolve("demo")
    ceiling = memory_ceiling()  # before the server is there, so that nothing else reads memory
    chosen = free_port(port)
    if chosen != port:
        console.print(f"Port {port} is taken, so the server takes {chosen}.")
    console.print("Starting the server")

    def progress(phase: str) -> None:
        console.print(f"  {phase}", style="dim")

    with local_server(["demo"], port=chosen, progress=progress) as started, asyncio.Runner() as runner:
        card = model_card(started.url)
        console.print(
            f"Ready in {started.start_seconds:.1f} s. Weights: {card['weights']}\n", markup=False, soft_wrap=True
        )
        server = ChatServer(started.url)
        [model] = runner.run(server.models())
        in_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        chat = TerminalChat(
            server,
            model,
            runner=runner,
            console=console,
            language=language_of_environment(os.environ),
            settings=Settings(temperature=0, max_tokens=256),  # so small a model rambles when it samples
            footnote=lambda answer: ceiling_line(answer, ceiling, int(card["weight_bytes"])),
        )
        console.print(f"> {QUESTION}", style="bold")
        with ExitStack() as stack:
            if in_terminal:
                stack.enter_context(own_foreground(sys.stdin.fileno()))
                stack.enter_context(quiet_keys(sys.stdin.fileno()))
            if chat.turn(QUESTION) is None and not in_terminal:
                raise click.ClickException("The demo model gave no answer; run the demo again.")
            console.print(f"\nThe API is at {server.url} until you leave; from another terminal:")
            console.print(curl_line(server.url), markup=False, soft_wrap=True)
            if in_terminal:
                read_line = terminal_line(None, list(COMMANDS))
                chat.run(read_line, Commands(chat, read_line))
            else:
                end = f"There is no terminal to chat in, so the demo ends; `{own_command()} serve demo` serves on."
                console.print(f"\n{end}", markup=False, soft_wrap=True)
        runner.run(server.close())


def curl_line(url: str) -> str:
    """A request that can be pasted into any shell."""
    body = '{"model": "demo", "messages": [{"role": "user", "content": "Name three colours."}]}'
    return f"curl {url}/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def own_command() -> str:
    """What to type to run firsttoken again: its name where the PATH leads to it, else its path as it was called."""
    import os
    import shutil
    import sys

    called, found = sys.argv[0], shutil.which("firsttoken")
    if os.path.basename(called) != "firsttoken" or (found and os.path.samefile(found, called)):
        return "firsttoken"
    return called


def model_card(root: str) -> dict[str, Any]:
    """What our own server at `root` says of its model."""
    import httpx

    data: list[dict[str, Any]] = httpx.get(f"{root}/v1/models", timeout=10, trust_env=False).json()["data"]
    return data[0]


def ceiling_line(answer: Answer, ceiling: MemoryCeiling, bytes_per_token: int) -> str | None:
    """How far the answer's decode speed is from what memory allows; None where either is unknown."""
    speed = answer.tokens_per_second
    if speed is None or not bytes_per_token:
        return None
    limit = ceiling.decode_ceiling(bytes_per_token)
    return (
        f"ceiling {limit:.0f} tok/s: memory reads {ceiling.bytes_per_second / 1e9:.1f} GB/s, a token "
        f"{bytes_per_token / 1e6:.0f} MB of weights; this answer ran at {speed / limit:.0%} of it"
    )
