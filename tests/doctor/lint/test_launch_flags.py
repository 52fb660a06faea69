"""`scripts/launch_flags.py` on small packages of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "launch_flags.py"

OLD = """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--max-model-len", type=int, default=None)
        parser.add_argument("--swap_space", type=float, default=4)
        parser.add_argument("--enforce-eager", action="store_true")
        parser.add_argument("--old-way", action="store_true", help="Deprecated: use another.")
"""
NEW = """
def get_kwargs(cls): ...

def _compute_kwargs(cls):
    human_readable_int_args = {"max_num_batched_tokens"}
    return human_readable_int(cls)

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        parser.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        parser.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        parser.add_argument("--dtype", "-d", **{**model_kwargs["dtype"], "default": None})
        parser.add_argument("--config", **get_kwargs(ModelConfig)["inner"])
"""
CONFIG = """
from typing import Literal, Optional
Half = Literal["half", "float16"]
DType = Literal["auto", Half]

class InnerConfig:
    x: int = 1

class Base:
    dtype: DType = "auto"

class ModelConfig(Base):
    max_model_len: Optional[int] = None
    enforce_eager: bool = False
    inner: InnerConfig | None = None
"""
ENVS = 'environment_variables: dict = {"VLLM_A": lambda: 1, "OTHER": lambda: 2}\n'


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def table(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=True)
    return tomllib.loads(done.stdout)


def test_flags_of_two_versions_become_one_row_each(tmp_path: Path) -> None:
    old = write(tmp_path / "old", {"vllm/engine/arg_utils.py": OLD})
    new = write(
        tmp_path / "new",
        {"vllm/engine/arg_utils.py": NEW, "vllm/config/model.py": CONFIG, "vllm/envs.py": ENVS},
    )
    found = table("vllm", f"0.1={old}", f"0.2={new}")
    assert found["versions"] == ["0.1", "0.2"]
    assert found["variables"] == {"VLLM_A": {"since": "0.2"}}
    flags = found["flags"]
    assert flags["--max-model-len"] == {"kind": "tokens", "since": "0.1"}
    assert flags["--enforce-eager"] == {"kind": "on-off", "since": "0.1"}
    assert flags["--swap-space"] == {"kind": "float", "since": "0.1", "gone": "0.2"}
    assert flags["--old-way"]["deprecated"] == "0.1"
    assert flags["--dtype"] == {"kind": "str", "also": ["-d"], "choices": ["auto", "half", "float16"], "since": "0.2"}


SGLANG = """
MODES = ["a", "b"]

class ServerArgs:
    model_path: A[str, Arg(help="where", aliases=["--model"])]
    tp_size: A[int, Arg(help="cards", aliases=["--tensor-parallel-size"])] = 1
    mode: A[Optional[str], Arg(help="which", choices=MODES)] = None
    fast: A[bool, "Whether."] = False
    hidden: A[int, Arg(no_cli=True)] = 0
    plain: int = 3
"""


def test_annotated_fields_are_flags_and_a_new_first_name_is_the_same_row(tmp_path: Path) -> None:
    before = 'parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)\n'
    old = write(tmp_path / "old", {"sglang/srt/server_args.py": before})
    new = write(tmp_path / "new", {"sglang/srt/server_args.py": SGLANG})
    flags = table("sglang", f"0.1={old}", f"0.2={new}")["flags"]
    assert flags == {
        "--fast": {"kind": "switch", "since": "0.2"},
        "--mode": {"kind": "str", "choices": ["a", "b"], "since": "0.2"},
        "--model-path": {"kind": "str", "also": ["--model"], "since": "0.2"},
        "--tp-size": {"kind": "int", "also": ["--tensor-parallel-size"], "since": "0.1"},
    }
