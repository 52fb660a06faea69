"""The `firsttoken` command. It imports a subcommand's module only when that subcommand runs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click

from firsttoken.cli.lazy_group import LazyGroup
from firsttoken.errors import ConfigError, FirstTokenError
from firsttoken.version import __version__

COMMANDS = {
    "serve": ("firsttoken.cli.serve", "serve", "Serve a model over an OpenAI-compatible HTTP API."),
    "chat": ("firsttoken.cli.chat", "chat", "Talk to a model in this terminal."),
    "ui": ("firsttoken.cli.ui", "ui", "Open a chat page for your browser."),
    "pull": ("firsttoken.cli.pull", "pull", "Download a model, or finish a download that was cut."),
    "bench": ("firsttoken.cli.bench", "bench", "Measure any OpenAI-compatible server, and compare runs."),
    "tune": ("firsttoken.cli.tune", "tune", "Keep only the settings that a measurement says help here."),
    "doctor": ("firsttoken.cli.doctor", "doctor", "Say whether a model will run fast here, and if not, why."),
    "fit": ("firsttoken.cli.fit", "fit", "Say what a model needs on a card, what fits, and how fast it will be."),
    "lint": ("firsttoken.cli.lint", "lint", "Check launch commands of vLLM, SGLang and firsttoken, and their like."),
    "kernels": ("firsttoken.cli.kernels", "kernels", "Measure how the GPU kernels are best launched on this card."),
    "version": ("firsttoken.cli.version", "version", "Print the versions of firsttoken, Python and torch."),
    "demo": ("firsttoken.cli.demo", "demo", "Ask the small demo model a first question (what `make demo` runs)."),
}
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR)  # for a file


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="firsttoken", message="%(prog)s %(version)s")
def cli() -> None:
    """Serve Qwen3-4B-Instruct and its dense relatives with the shortest wait for the first token."""


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong use, 130 interrupted. Users see one sentence, never
    a traceback of their own mistake."""
    try:
        status = cli.main(args=args, prog_name="firsttoken", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        _leave(2)
    except click.ClickException as error:
        error.show()
        _leave(error.exit_code)
    except FirstTokenError as error:
        print(f"Error: {error}", file=sys.stderr)
        _leave(2 if isinstance(error, ConfigError) else 1)
    except (KeyboardInterrupt, click.Abort):
        print("Stopped; the same command goes on where it was.", file=sys.stderr)
        _leave(130)
    except BrokenPipeError:
        # The reader (`| head`) is gone; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(0)
    except OSError as error:
        sentence = _of_the_disk(error)
        if sentence is None:
            raise
        print(f"Error: {sentence}", file=sys.stderr)
        _leave(1)
    _leave(status if isinstance(status, int) else 0)


def _of_the_disk(error: OSError) -> str | None:
    """What the user can do about a disk or a folder that takes nothing; None where it is neither."""
    if error.errno in _DISK_FULL:
        return f"The disk is full{f' at {error.filename}' if error.filename else ''}; make room and run it again."
    if error.errno in _NO_PLACE and error.filename:
        return f"{error.filename} cannot be opened ({error.strerror}); choose another place, or change its permissions."
    return None


def _leave(status: int) -> None:
    raise SystemExit(status)
