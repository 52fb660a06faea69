"""`firsttoken doctor live`: what bounds a server that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from firsttoken.cli.bench_options import EXISTING, POSITIVE
from firsttoken.cli.option_types import IntRange


@click.command(short_help="What bounds a running server, and the change most likely to help.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server's root, or its /v1.")
@click.option("--model", help="The name that it serves the model by; its first when left out.")
@click.option("--api-key", envvar="OPENAI_API_KEY", help="The server's key.  [env: OPENAI_API_KEY]")
@click.option("--insecure", is_flag=True, help="Accept any TLS certificate.")
@click.option(
    "--seconds", type=POSITIVE, default=5.0, show_default=True, help="How long the look is that a verdict rests on."
)
@click.option("--interval", type=POSITIVE, default=0.5, show_default=True, help="Seconds between two readings.")
@click.option(
    "--once", is_flag=True, help="One verdict, then end. Where the output is no terminal this is all there is."
)
@click.option("--json", "as_json", is_flag=True, help="One verdict, as JSON.")
@click.option(
    "--model-config", type=EXISTING, help="The model's config.json or folder, where the server does not tell."
)
@click.option("--kv-element-bytes", type=POSITIVE, default=2.0, show_default=True, help="Of the KV cache; 1 for fp8.")
@click.option("--memory-gb-s", type=POSITIVE, help="The memory's ceiling in GB/s; the measured one when left out.")
@click.option(
    "--product-tflop-s", type=POSITIVE, help="A product's ceiling in TFLOP/s; the measured one when left out."
)
@click.option("--gpu", metavar="NAME", help="The card of another machine, whose data sheet gives the ceilings.")
@click.option("--gpus", type=IntRange(1), default=1, show_default=True, help="GPUs over which the model is split.")
def live(
    url: str,
    model: str | None,
    api_key: str | None,
    insecure: bool,
    seconds: float,
    interval: float,
    once: bool,
    as_json: bool,
    model_config: Path | None,
    kv_element_bytes: float,
    gpu: str | None,
    gpus: int,
    **rates: Any,
) -> None:
    """Watch a running firsttoken, vLLM or SGLang server by its /metrics: what bounds it, on which numbers that rests,
    the one change most likely to help, and the gain that the roofline predicts.

    A verdict is only about the load that there is meanwhile. The server is asked for nothing but its metrics.
    """
    from firsttoken.bench.http_client import Address
    from firsttoken.bench.served import Served
    from firsttoken.cli.bench_options import given_rates
    from firsttoken.cli.bench_results import terminal
    from firsttoken.doctor.live.follow import follow
    from firsttoken.doctor.live.follow import once as look_once
    from firsttoken.doctor.live.known import find_bounds
    from firsttoken.doctor.live.local_sensors import local_sensors
    from firsttoken.doctor.live.view import shown
    from firsttoken.doctor.live.watch import Watch

    console = terminal()
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with Served(Address.parse(url), headers=headers, verify_tls=not insecure) as served:
        identity = served.identify(model)
        bounds = find_bounds(
            url,
            identity,
            model_config=model_config,
            kv_element_bytes=kv_element_bytes,
            card_name=gpu,
            given=given_rates(rates),
            devices=gpus,
        )
        with local_sensors(url, identity.details.get("device", "")) as sensors:
            watch = Watch(served.metrics, bounds, sensors, seconds=seconds)
            head = f"{identity.model} at {url} ({identity.kind or 'unknown server'} {identity.version})"
            if not once and not as_json and console.is_terminal:
                follow(watch, head, console, interval)
                return
            found = look_once(watch, seconds, interval)
    if as_json:
        click.echo(json.dumps({"url": url, "model": identity.model, **found.as_json()}, indent=2))
    else:
        console.print(shown(head, found))
