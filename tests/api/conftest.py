"""Servers that the API's tests speak to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.api.live_server import LiveServer, live_server
from tests.api.whole_server import WholeServer, whole_server
from tests.builders import write_tokenizer
from tests.tokenizer.templates import CHATML

from firsttoken.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = write_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Tokenizer.load(folder)


@pytest.fixture(scope="session")
def shared_server(tokenizer: Tokenizer) -> Iterator[LiveServer]:
    with live_server(tokenizer) as running:
        yield running


@pytest.fixture
def server(shared_server: LiveServer) -> LiveServer:
    shared_server.reset()
    return shared_server


@pytest.fixture(scope="session")
def shared_qwen_server(qwen_with: Callable[[str], Tokenizer]) -> Iterator[LiveServer]:
    with live_server(qwen_with(CHATML), max_model_len=4096) as running:
        yield running


@pytest.fixture
def qwen_server(shared_qwen_server: LiveServer) -> LiveServer:
    """Qwen3's vocabulary, and a template in the form of Qwen3's: it prints tools, and its model thinks."""
    shared_qwen_server.reset()
    return shared_qwen_server


@pytest.fixture(scope="session")
def demo_server(demo_file: Path) -> Iterator[WholeServer]:
    flags = ("--served-model-name", "demo", "--max-model-len", "2048", "--kv-cache-memory", "256MiB")
    with whole_server(demo_file, *flags) as running:
        yield running
