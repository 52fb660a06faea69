"""`firsttoken chat`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from firsttoken.cli.option_types import FloatRange, IntRange

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from rich.console import Console

    from firsttoken.chat.chat_server import ChatServer
    from firsttoken.chat.language import Language
    from firsttoken.chat.settings import Model
    from firsttoken.chat.terminal import TerminalChat


@click.command()
@click.argument("model", required=False)
@click.option("--url", help="A server that runs already, such as http://127.0.0.1:8000.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="The server's key.  [env: OPENAI_API_KEY]")
@click.option("--system", default="", help="A system message that opens every conversation.")
@click.option("--temperature", type=FloatRange(0), help="0 is greedy; the model's default otherwise.")
@click.option("--max-tokens", type=IntRange(1), help="The longest answer, in tokens.")
@click.option("--no-save", is_flag=True, help="Keep neither what is typed nor what is said on the disk.")
def chat(
    model: str | None,
    url: str | None,
    api_key: str | None,
    system: str,
    temperature: float | None,
    max_tokens: int | None,
    no_save: bool,
) -> int:
    """Talk to a model in this terminal.

    With MODEL (a folder, a .gguf file, a repository, or `demo`) a server is started for the length of the chat. With
    --url a running one is used, and MODEL is the name to ask it for. With neither, http://127.0.0.1:8000 is tried.

    From a pipe or a file, all of the input is one question: the answer goes to standard output, everything else to
    standard error.
    """
    import asyncio
    import os
    from contextlib import ExitStack

    from rich.console import Console

    from firsttoken.chat import terminal_words as words
    from firsttoken.chat.chat_errors import ChatError
    from firsttoken.chat.chat_server import ChatServer
    from firsttoken.chat.data_folder import data_folder
    from firsttoken.chat.event_stream import whole
    from firsttoken.chat.history import History
    from firsttoken.chat.language import language_of_environment
    from firsttoken.chat.patience import Patience
    from firsttoken.chat.saved_chats import SavedChats
    from firsttoken.chat.settings import Settings
    from firsttoken.chat.terminal import TerminalChat
    from firsttoken.cli.local_server import free_port, local_server
    from firsttoken.errors import FirstTokenError
    from firsttoken.model.hub import resolve

    language = language_of_environment(os.environ)
    in_terminal = sys.stdin.isatty()
    console = Console(highlight=False)
    notes = console if in_terminal else Console(highlight=False, stderr=True)
    kept: Path | None = None if no_save or not in_terminal else data_folder(os.environ)
    with ExitStack() as stack:
        if model is not None and url is None:
            resolve(model)  # here, and not in the server, whose progress nobody sees
            with notes.status(words.STARTING.text(language)) as status:
                started = stack.enter_context(
                    local_server([model], port=free_port(8000), progress=lambda phase: status.update(phase))
                )
            url, model = started.url, None
        runner = stack.enter_context(asyncio.Runner())
        # In the middle of a chat a server that is down may be on its way back; at its beginning the URL may be wrong.
        server = ChatServer(url or "http://127.0.0.1:8000", api_key=api_key, patience=Patience(down=60))
        stack.callback(lambda: runner.run(server.close()))
        try:
            chosen = _choose(runner, server, model, notes, language)
        except ChatError as error:
            raise FirstTokenError(error.text(language)) from error
        talk = TerminalChat(
            server,
            chosen,
            runner=runner,
            console=console,
            notes=notes,
            language=language,
            history=History(whole(system)),
            settings=Settings(temperature=temperature, max_tokens=max_tokens),
            saved=SavedChats(kept / "terminal-chats") if kept else None,
        )
        return _talk(talk, kept) if in_terminal else _answer_once(talk)


def _choose(runner: asyncio.Runner, server: ChatServer, name: str | None, notes: Console, language: Language) -> Model:
    """The model of that name, or the first. While the server loads, its progress is shown."""
    from firsttoken.chat.patience import Patience
    from firsttoken.chat.settings import Model

    with notes.status("…") as status:
        models = runner.run(server.models(lambda error, pause: status.update(error.text(language)), Patience()))
    if name is None:
        return models[0]
    # A name that is not listed is for the server to refuse: some take more than they list.
    return next((model for model in models if model.name == name), Model(name))


def _talk(chat: TerminalChat, kept: Path | None) -> int:
    from firsttoken.chat.commands import COMMANDS, Commands
    from firsttoken.chat.line import terminal_line
    from firsttoken.chat.views import quiet_keys
    from firsttoken.cli.local_server import polite_signals

    read_line = terminal_line(kept / "typed" if kept else None, list(COMMANDS))
    with polite_signals(), quiet_keys(sys.stdin.fileno()):  # whatever ends us, the terminal is as it was
        chat.run(read_line, Commands(chat, read_line))
    return 0


def _answer_once(chat: TerminalChat) -> int:
    question = sys.stdin.buffer.read().decode("utf-8", errors="replace").strip()
    if not question:
        raise click.UsageError("There is no question on standard input.")
    chat.turn(question)
    return 1 if chat.failed else 0
