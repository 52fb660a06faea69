from __future__ import annotations

import subprocess
import sys


def test_a_run_and_its_client_processes_load_no_torch() -> None:
    code = (
        "import firsttoken.bench.run, firsttoken.bench.worker, sys;"
        "print(sorted({'torch', 'transformers', 'triton', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_client_process_loads_next_to_nothing() -> None:
    code = (
        "import firsttoken.bench.worker, sys; print(sorted({'numpy', 'httpx', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
