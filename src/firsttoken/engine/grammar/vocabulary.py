"""A model's ids as llguidance wants them: the bytes of each, those that are no text, and how text is cut."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread

from llguidance import LLTokenizer, TokenizerWrapper

from firsttoken.engine.grammar.refusal import refusal
from firsttoken.errors import ModelError, RequestError
from firsttoken.gguf_tokenizer import load_gguf
from firsttoken.segment_encoder import as_text_only
from firsttoken.token_bytes import Spelling, TokenBytes
from firsttoken.tokenizer_files import TokenizerFiles, load_folder

log = logging.getLogger(__name__)

Vocabulary = Callable[[], LLTokenizer]
"""Waits for the vocabulary. Raises InvalidRequest where the model has none."""


def vocabulary_of(path: str, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> Vocabulary:
    """Begins to read a model folder's or .gguf file's vocabulary in a thread: a second of work for 150,000 ids, beside
    the reading of the weights.
    """
    found: Future[LLTokenizer] = Future()

    def read() -> None:
        try:
            found.set_result(_read(Path(path), token_id_limit, eos_token_ids))
        except ModelError as error:
            found.set_exception(refusal(f"this model's vocabulary cannot be read ({error})"))
        except Exception:  # of a kind that the library does not know: the model runs all the same
            log.exception("the vocabulary cannot be used for grammars")
            found.set_exception(refusal("this model's vocabulary cannot be used for grammars"))

    Thread(target=read, name="vocabulary", daemon=True).start()
    return found.result


def wait_for(vocabulary: Vocabulary) -> None:
    """So that no request waits for it. A model without one is found out by whoever needs it."""
    with suppress(RequestError):
        vocabulary()


def make_vocabulary(files: TokenizerFiles, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> LLTokenizer:
    """Ids from `token_id_limit` up do not exist for it. All added tokens count as special: a grammar's text never
    allows them, and it names them as `<name>`. Raises ModelError where the model has no end id.
    """
    if not eos_token_ids:
        raise ModelError("it names no end token")
    tokens = _Tokens(files, token_id_limit, eos_token_ids)
    tokens.itself = LLTokenizer(TokenizerWrapper(tokens), n_vocab=token_id_limit, eos_token=list(eos_token_ids))
    return tokens.itself


class _Tokens:
    """What llguidance asks of a tokeniser. Called with text, it cuts what a grammar forces as the model knows it."""

    itself: LLTokenizer

    def __init__(self, files: TokenizerFiles, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> None:
        backend = files.backend
        spelling = Spelling.of(backend)
        added = {id_: token.content for id_, token in backend.get_added_tokens_decoder().items()}
        table = TokenBytes(backend, spelling, added)
        self.eos_token_id = eos_token_ids[0]
        self.bos_token_id = None
        self.tokens = [table[id_] for id_ in range(token_id_limit)]
        self.special_token_ids = sorted(id_ for id_ in {*added, *eos_token_ids} if id_ < token_id_limit)
        self._encoder = None
        if spelling.byte_level:  # SentencePiece would put a space in front
            self._encoder = as_text_only(backend)
            self._encoder.normalizer = None

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("text, not bytes")  # how the wrapper finds out what it may send
        if self._encoder is None:
            return self.itself.greedy_tokenize(text)
        return self._encoder.encode(text, add_special_tokens=False).ids


def _read(path: Path, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> LLTokenizer:
    files = load_gguf(path) if path.is_file() else load_folder(path)
    return make_vocabulary(files, token_id_limit, eos_token_ids)
