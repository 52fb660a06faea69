"""What an API worker loads."""

from __future__ import annotations

import subprocess
import sys


def test_the_api_never_imports_torch_or_the_engine() -> None:
    code = (
        "import sys, firsttoken.server.app; "
        "print([name for name in ('torch', 'firsttoken.engine', 'firsttoken.kernels') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
