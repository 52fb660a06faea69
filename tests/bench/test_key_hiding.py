"""Keys in commands."""

from __future__ import annotations

import pytest

from firsttoken.bench.key_hiding import hide_keys


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("serve m --api-key s3cret --port 1", "serve m --api-key … --port 1"),
        ("serve m --api-key='a b' --port 1", "serve m --api-key=… --port 1"),
        ("HF_TOKEN=hf_x OPENAI_API_KEY=k serve m", "HF_TOKEN=… OPENAI_API_KEY=… serve m"),
        ("serve --api_key k --hf-token=t --admin-api-key a", "serve --api_key … --hf-token=… --admin-api-key …"),
        ("proxy --header 'Authorization: Bearer k' m", "proxy --header 'Authorization: Bearer …' m"),
        ("serve m --max-num-batched-tokens 4", "serve m --max-num-batched-tokens 4"),
    ],
)
def test_a_key_in_a_command_is_hidden_and_nothing_else(command: str, shown: str) -> None:
    assert hide_keys(command) == shown
