"""The rehearsal before the first request: it runs the chat's whole path, and neither engine nor metrics hear of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send
from tests.builders import write_tokenizer

from firsttoken.config import ServerConfig
from firsttoken.detokenizer import Detokenizer
from firsttoken.server.rehearsal import rehearse
from firsttoken.tokenizer import Tokenizer
from firsttoken.tokenizer_files import load_folder


class CountingTokenizer(Tokenizer):
    chats = 0

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        self.chats += 1
        return super().encode_chat(messages, **options)


class Recorder:
    """An app that only notes what it is asked."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])


async def test_two_chats_are_encoded_and_the_real_app_sees_a_probe_only(tmp_path: Path) -> None:
    tokenizer = CountingTokenizer(load_folder(write_tokenizer(tmp_path)))
    app = Recorder()
    await rehearse(app, ServerConfig(tokenizer_path="", api_keys=("secret",), served_model_names=("m",)), tokenizer)
    assert tokenizer.chats == 2
    assert app.paths == ["/version"]
    assert Detokenizer(tokenizer).push(tokenizer.encode("after")) == "after"


async def test_a_model_without_a_chat_template_is_rehearsed_too(tmp_path: Path) -> None:
    files = load_folder(write_tokenizer(tmp_path))
    files.templates.clear()
    app = Recorder()
    await rehearse(app, ServerConfig(tokenizer_path=""), Tokenizer(files))
    assert app.paths == ["/version"]
