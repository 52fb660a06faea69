"""Settings as a file for `serve --config`: TOML for firsttoken, YAML for vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping

from firsttoken.tune.arms import Value
from firsttoken.tune.space import Space


def config_text(space: Space, settings: Mapping[str, Value]) -> str:
    """The file's text. JSON's numbers, truths and quoted texts are also TOML's and YAML's."""
    mark = " = " if space.config == "toml" else ": "
    lines = ["# Written by `firsttoken tune`: what a measurement on this machine and this work says helps."]
    if not settings:
        lines.append("# Nothing differs from the engine's own defaults.")
    lines += [f"{name}{mark}{json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(lines) + "\n"
