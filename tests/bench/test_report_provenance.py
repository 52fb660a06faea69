"""How a run was measured, as a reader is told it."""

from __future__ import annotations

import pytest

from firsttoken.bench.records import RunResult
from firsttoken.bench.report_provenance import fact, provenance


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("memory", 2.527599002e10, "23.5 GiB"),
        ("weight_bytes", "96436224", "92.0 MiB"),
        ("read_bytes_per_s", 4.41e12, "4,410 GB/s"),
        ("product_flops_per_s", 7.91e14, "791 TFLOP/s"),
        ("cores", 16.0, "16"),
        ("root", "demo", "demo"),
        ("driver", None, ""),
    ],
)
def test_facts_carry_their_units(key: str, value: str | float | None, shown: str) -> None:
    assert fact(key, value) == shown


def test_the_command_can_be_given_to_a_shell_again() -> None:
    run = RunResult(command=["firsttoken", "bench", "run", "--launch", "serve demo", "--api-key", "…"])
    assert "firsttoken bench run --launch &#x27;serve demo&#x27; --api-key …" in provenance(run)
