"""`firsttoken pull`."""

from __future__ import annotations

import click


@click.command()
@click.argument("model")
@click.option(
    "--hub",
    type=click.Choice(["huggingface", "modelscope"]),
    default="huggingface",
    show_default=True,
    help="Where a repository is fetched from.",
)
def pull(model: str, hub: str) -> None:
    """Download MODEL, or finish a download that was cut, and print where it lies.

    MODEL is a repository such as Qwen/Qwen3-4B-Instruct-2507, or `demo`. Only safetensors, GGUF and JSON are read.
    """
    from firsttoken.model.hub import fetch

    click.echo(fetch(model, hub=hub))
