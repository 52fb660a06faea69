"""A model's ids as llguidance wants them: the bytes of each, and which are no text."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread

from llguidance import LLTokenizer, TokenizerWrapper

from firsttoken.engine.grammar.refusal import refusal
from firsttoken.errors import InvalidRequest, ModelError
from firsttoken.token_table import TokenTable, token_table

log = logging.getLogger(__name__)

Vocabulary = Callable[[], LLTokenizer]
"""Waits for the vocabulary. Raises InvalidRequest where the model has none."""


def vocabulary_of(path: str, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> Vocabulary:
    """Begins to read a model folder's or .gguf file's vocabulary in a thread, beside the reading of the weights."""
    found: Future[LLTokenizer] = Future()

    def read() -> None:
        try:
            found.set_result(make_vocabulary(token_table(Path(path)), token_id_limit, eos_token_ids))
        except ModelError as error:
            found.set_exception(refusal(f"this model's vocabulary cannot be read ({error})"))
        except Exception:  # of a kind that the library does not know: the model runs all the same
            log.exception("the vocabulary cannot be used for grammars")
            found.set_exception(refusal("this model's vocabulary cannot be used for grammars"))

    Thread(target=read, name="vocabulary", daemon=True).start()
    return found.result


def wait_for(vocabulary: Vocabulary) -> None:
    """So that no request waits for it. A model without one is found out by whoever needs it."""
    with suppress(InvalidRequest):
        vocabulary()


def make_vocabulary(table: TokenTable, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> LLTokenizer:
    """Ids from `token_id_limit` up do not exist for it. All added tokens count as special: a grammar's text never
    allows them, and it names them as `<name>`. Raises ModelError where the model has no end id.
    """
    if not eos_token_ids:
        raise ModelError("it names no end token")
    return LLTokenizer(TokenizerWrapper(_Tokens(table, token_id_limit, eos_token_ids)), eos_token=list(eos_token_ids))


class _Tokens:
    """What llguidance asks of a tokeniser. It is never asked to cut text: no grammar here forces how text is cut (see
    `source`)."""

    def __init__(self, table: TokenTable, token_id_limit: int, eos_token_ids: tuple[int, ...]) -> None:
        missing = token_id_limit - len(table.tokens)
        self.tokens = table.tokens[:token_id_limit] + [b""] * missing
        self.eos_token_id = eos_token_ids[0]
        self.bos_token_id = None
        self.special_token_ids = sorted(id_ for id_ in table.added | set(eos_token_ids) if id_ < token_id_limit)

    def __call__(self, text: str | bytes) -> list[int]:
        raise NotImplementedError("text is cut where requests come in")
