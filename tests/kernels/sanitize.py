"""The kernels' tests on a GPU under NVIDIA's compute-sanitizer, several processes at once.

    python -m tests.kernels.sanitize --tool memcheck --processes 8
    python -m tests.kernels.sanitize --tool racecheck -k "decode_rows or pairs"

Only this package's kernels are watched: torch's own would take most of the time. Tests of times are left out. Prints a
line a process and which kernels ran; logs go to the folder that --out names. Exits with 1 where a test failed, the
sanitizer found something, a process did not end in its time, or (without -k) a kernel did not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GRAPHS = "test_whole_steps.py"
TESTS = [*sorted(Path(__file__).parent.glob("test_gpu_*.py")), ROOT / "tests" / "engine" / GRAPHS]
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_PYTEST = ("-q", "-o", "addopts=--import-mode=importlib")
_NO_TIMES = "not timed"
_KERNEL = re.compile(r"^def (\w+_kernel)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """One process under the sanitizer, and where it writes."""

    process: subprocess.Popen[bytes]
    log: Path
    loaded: Path
    tests: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, default="memcheck")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("-k", dest="expression", default="", help="pytest's own: which tests")
    parser.add_argument("--out", type=Path, default=Path("sanitize"))
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for all")
    given = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(sanitizer).is_file():
        parser.error("compute-sanitizer was not found; it comes with the CUDA toolkit, in its bin folder.")
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    tests, ours = collected(given.expression), kernel_names()
    if not tests:
        parser.error("no test was found; pytest says why: python -m pytest --collect-only tests/kernels")
    parts = [
        started(sanitizer, given.tool, share, ours, out / f"{given.tool}-{i}")
        for i, share in enumerate(shares(tests, given.processes))
    ]
    try:
        until = time.monotonic() + given.limit
        endings = [ended(part, until) for part in parts]  # each is waited for
    finally:
        for part in parts:
            end(part)
    ran = {name for part in parts if part.loaded.is_file() for name in part.loaded.read_text().split()}
    print(f"{given.tool}: {len(tests)} tests, {len(ran & ours)} of {len(ours)} kernels ran")
    if absent := sorted(ours - ran):
        print(f"not run: {', '.join(absent)}")
    return 0 if all(endings) and (given.expression or not absent) else 1


def kernel_names() -> set[str]:
    """Every Triton kernel of the package, by its source."""
    folder = ROOT / "src" / "firsttoken" / "kernels" / "gpu"
    sources = [file.read_text() for file in folder.glob("*.py")]
    return {name for source in sources if "@triton.jit" in source for name in _KERNEL.findall(source)}


def collected(expression: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", *_PYTEST, "--collect-only", *map(str, TESTS)]
    command += ["-k", f"({expression}) and {_NO_TIMES}" if expression else _NO_TIMES]
    listed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "::" in line]


def shares(tests: list[str], processes: int) -> list[list[str]]:
    """The tests of each process: a fourth of the processes for those that capture graphs, which no other has."""
    graphs = [test for test in tests if GRAPHS in test]
    others = [test for test in tests if GRAPHS not in test]
    count = max(processes // 4, 1) if others else processes
    split = [graphs[i::count] for i in range(count)]
    count = max(processes - count, 1) if graphs else processes
    return [share for share in (*split, *(others[i::count] for i in range(count))) if share]


def started(sanitizer: str, tool: str, tests: list[str], ours: set[str], base: Path) -> Part:
    ids, log, loaded = (base.with_suffix(suffix) for suffix in (".tests", ".log", ".kernels"))
    ids.write_text("\n".join(tests))
    loaded.unlink(missing_ok=True)
    watched = [word for name in sorted(ours) for word in ("--kernel-name", f"kns={name}")]
    command = [sanitizer, "--tool", tool, "--error-exitcode", "3", *watched]
    command += [sys.executable, __file__, "--child", str(ids), str(loaded)]
    environment = dict(os.environ)
    if not any(GRAPHS in test for test in tests):  # capturing a graph needs torch's own memory
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # a tensor's end is an allocation's end
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    return Part(process, log, loaded, len(tests))


def ended(part: Part, until: float) -> bool:
    """Waits for it and prints its line; whether all is well."""
    try:
        code: int | None = part.process.wait(max(until - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        end(part)
        code = None
    lines = part.log.read_text(errors="replace").splitlines()
    said = [line.strip("= ") for line in lines if "SUMMARY" in line or re.search(r"\d+ (passed|failed)", line)]
    state = "not done in time" if code is None else f"exit {code}"
    print(f"{part.log.name}: {part.tests} tests, {state}; {'; '.join(said)}", flush=True)
    return code == 0


def end(part: Part) -> None:
    """Ends the sanitizer and the tests that it runs, unless they have ended."""
    if part.process.poll() is None:
        os.killpg(part.process.pid, signal.SIGKILL)
        part.process.wait()


def child(ids: Path, loaded: Path) -> int:
    """Runs the tests of one process and notes which kernels were loaded for a launch."""
    import pytest
    from triton import knobs

    names: set[str] = set()
    # Triton's hook: module, function, name, metadata's files, hash
    knobs.runtime.kernel_load_end_hook.add(lambda module, function, name, group, key: names.add(name))
    code = pytest.main([*_PYTEST, "-p", "no:cacheprovider", *ids.read_text().splitlines()])
    loaded.write_text("\n".join(sorted(names)))
    return int(code)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        raise SystemExit(child(Path(sys.argv[2]), Path(sys.argv[3])))
    raise SystemExit(main())
