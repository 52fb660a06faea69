"""`firsttoken version`."""

from __future__ import annotations

import click


@click.command()
def version() -> None:
    """Print the versions of firsttoken, Python and torch, and the GPUs that the driver sees."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from firsttoken.machine.gpu import read_gpus
    from firsttoken.version import __version__

    click.echo(f"firsttoken {__version__}")
    click.echo(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        click.echo(f"torch {installed('torch')}")  # from its metadata: importing it takes seconds
    except PackageNotFoundError:
        click.echo("torch is not installed")
    for gpu in read_gpus():
        click.echo(f"GPU {gpu.index}: {gpu.name}, {gpu.memory_total / 2**30:.0f} GiB, driver {gpu.driver}")
