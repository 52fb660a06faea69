"""schemathesis over a server's own OpenAPI document: what it makes of the schemas, right and wrong, never is a 5xx."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

# Not among the checks: that what a schema allows is accepted. Whether a token id exists, a prompt fits the context or
# two fields go together is for the model and the context to say: a 400 is a right answer to a body of the right form.
LEFT_OUT = "positive_data_acceptance"


def run(url: str, *, seconds: int, seed: int, phases: str = "examples,coverage,fuzzing,stateful") -> list[str]:
    """The lines that tell what failed: none if all went well."""
    program = str(Path(sys.executable).parent / "schemathesis")
    options = ["--mode", "all", "--checks", "all", "--exclude-checks", LEFT_OUT, "--phases", phases]
    options += ["--max-time", str(seconds), "--seed", str(seed), "--continue-on-failure", "--no-shrink", "--no-color"]
    with tempfile.TemporaryDirectory() as folder:  # its caches are kept nowhere
        done = subprocess.run(
            [program, "run", f"{url}/openapi.json", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds + 300,
        )
    if done.returncode == 0:
        return []
    return (done.stdout + done.stderr).splitlines()
