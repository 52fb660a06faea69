"""Fixtures that several parts' tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from firsttoken.model.hub import resolve
from firsttoken.tokenizer import Tokenizer
from firsttoken.tokenizer_files import load_folder
from tests.tokenizer.qwen import write_qwen3

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported, which any test module may do
# A shell's background job, and all that it starts, ignores the first; what nohup starts ignores the second
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The demo model's GGUF file, fetched once and kept in the cache; FIRSTTOKEN_DEMO_FILE names another copy."""
    return resolve("demo")


@pytest.fixture(scope="session")
def qwen_folder(request: pytest.FixtureRequest) -> Path:
    """Qwen3's tokeniser files; built once (3 s) for all of pytest's workers, then kept in its cache."""
    folder = request.config.cache.mkdir("qwen3-tokenizer")
    with FileLock(folder / "lock"):
        if not (folder / "generation_config.json").exists():  # written last
            write_qwen3(folder)
    return folder


@pytest.fixture(scope="session")
def qwen_with(qwen_folder: Path) -> Callable[[str], Tokenizer]:
    """Qwen's tokeniser with a chat template of the test's own; the vocabulary is loaded once."""
    files = load_folder(qwen_folder)
    return lambda template: Tokenizer(replace(files, templates={"default": template}))
