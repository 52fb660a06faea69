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
@click.option("--revision", help="A branch, tag or commit of the repository.")
@click.option(
    "--download-dir",
    "--cache-dir",
    "download_dir",
    type=click.Path(file_okay=False),
    help="Where to keep it, instead of the hub's own cache.",
)
def pull(model: str, hub: str, revision: str | None, download_dir: str | None) -> None:
    """Download MODEL, or finish a download that was cut, and print where it lies.

    MODEL is a repository such as Qwen/Qwen3-4B-Instruct-2507, or `demo`. Only safetensors, GGUF and JSON are read.
    """
    from firsttoken.model.hub import resolve

    # Asked for by name, so ask the hub whether there is a newer version.
    click.echo(resolve(model, hub=hub, revision=revision, cache_dir=download_dir, refresh=True))
