from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from firsttoken.model.hub import resolve
from firsttoken.tokenizer import Tokenizer
from tests.tokenizer.sentencepiece import write_sentencepiece_folder
from tests.tokenizer.templates import CHATML


@pytest.fixture(scope="session")
def qwen(qwen_with: Callable[[str], Tokenizer]) -> Tokenizer:
    return qwen_with(CHATML)


@pytest.fixture(scope="session")
def sentencepiece_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sentencepiece")
    write_sentencepiece_folder(folder)
    return folder


@pytest.fixture(scope="session")
def sentencepiece(sentencepiece_folder: Path) -> Tokenizer:
    return Tokenizer.load(sentencepiece_folder)


@pytest.fixture(scope="session")
def demo() -> Tokenizer:
    return Tokenizer.load(resolve("demo"))
