"""What a grammar lets a model write where it must call, or may, or thinks before it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher
from tests.builders import write_tokenizer

from firsttoken.engine.grammar.compiler import _LIMITS
from firsttoken.engine.grammar.source import to_llguidance
from firsttoken.engine.grammar.vocabulary import make_vocabulary
from firsttoken.server.answer_grammar import CallRules, Thoughts, answer_grammar
from firsttoken.server.schemas.tools import Function
from firsttoken.server.tools.call_form import HERMES, LLAMA3_JSON, CallForm
from firsttoken.token_table import TokenTable
from firsttoken.tokenizer import Tokenizer
from firsttoken.tokenizer_files import TokenizerFiles, load_folder
from firsttoken.types import Grammar

COLOR = {
    "type": "object",
    "properties": {"color": {"$ref": "#/$defs/Color"}, "note": {"type": "string"}},
    "required": ["color"],
    "additionalProperties": False,
    "$defs": {"Color": {"enum": ["red", "绿"]}},
}


def function(**fields: Any) -> Function:
    return Function.model_validate(fields)


FUNCTIONS = [
    function(name="paint", parameters=COLOR),
    function(name="paint2", parameters={"properties": {"n": {"type": "integer"}}}),
    function(name="停"),
]
RED = '{"color": "red"}'


class Reader:
    """Follows text through a grammar, token by token as the tokeniser cuts it."""

    def __init__(self, files: TokenizerFiles) -> None:
        self.tokenizer = Tokenizer(files)
        assert files.eos_token_ids
        limit = self.tokenizer.id_limit
        added = frozenset(files.backend.get_added_tokens_decoder())
        table = TokenTable([self.tokenizer.token_bytes(id_) for id_ in range(limit)], added)
        self._vocabulary = make_vocabulary(table, limit, files.eos_token_ids)

    def _is_token(self, tag: str) -> bool:
        return self.tokenizer.added_id(tag) is not None

    def grammar(
        self,
        form: CallForm | None,
        functions: list[Function] = FUNCTIONS,
        *,
        must: bool = False,
        single: bool = False,
        thoughts: Thoughts = "none",
        answer: Grammar | None = None,
    ) -> LLMatcher:
        calls = None if form is None else CallRules(form=form, functions=functions, must=must, single=single)
        made = answer_grammar(calls=calls, thoughts=thoughts, structured=answer is not None, is_token=self._is_token)
        whole = Grammar(kind="lark", source=made) if answer is None else replace(answer, around=made)
        root = LLMatcher(self._vocabulary, to_llguidance(whole), log_level=0, limits=_LIMITS)
        assert not root.is_error(), root.get_error()
        return root

    def takes(self, root: LLMatcher, text: str, *, whole: bool = True) -> bool:
        """Whether the text may be written, and (if `whole`) the answer end there."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        matcher = root.deep_copy()
        return bool(matcher.try_consume_tokens(ids) == len(ids) and (matcher.is_accepting() or not whole))


@pytest.fixture(scope="module")
def qwen(qwen_folder: Path) -> Reader:
    """Its tags are tokens."""
    return Reader(load_folder(qwen_folder))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Its tags are text."""
    return Reader(load_folder(write_tokenizer(tmp_path_factory.mktemp("tokenizer"))))


@pytest.fixture(params=["qwen", "plain"])
def reader(request: pytest.FixtureRequest) -> Reader:
    found: Reader = request.getfixturevalue(request.param)
    return found


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def llama(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


FORMS = pytest.mark.parametrize(
    ("form", "write", "separator"), [(HERMES, hermes, "\n"), (LLAMA3_JSON, llama, "; ")], ids=["hermes", "llama"]
)
Write = Callable[[str, str], str]


@FORMS
def test_where_a_call_is_wanted_nothing_else_comes(
    reader: Reader, form: CallForm, write: Write, separator: str
) -> None:
    root = reader.grammar(form, must=True)
    call, other, empty = write("paint", RED), write("paint2", '{"n": 12, "more": [1]}'), write("停", "{}")
    for text in (call, other, empty, write("paint", '{"color": "绿", "note": "</tool\\n"}')):
        assert reader.takes(root, text), text
    assert reader.takes(root, separator.join([call, other, empty]))
    for text in ("", "Hm", " " + call, "\n" + call, call + "Hm", call[:-1], write("rm", "{}"), write("paint", "{}")):
        assert not reader.takes(root, text), text
    for arguments in ('{"color": "blue"}', '{"color": "red", "x": 1}', '{"n": 1}', "[]", '"red"'):
        assert not reader.takes(root, write("paint", arguments)), arguments
    assert not reader.takes(root, write("停", '{"a": 1}'))


@FORMS
def test_one_call_is_one(reader: Reader, form: CallForm, write: Write, separator: str) -> None:
    root = reader.grammar(form, FUNCTIONS[:1], must=True, single=True)
    call = write("paint", RED)
    assert reader.takes(root, call)
    assert not reader.takes(root, call + separator, whole=False)
    assert not reader.takes(root, write("paint2", "{}"))


@FORMS
def test_where_a_call_may_come_text_is_free_and_calls_are_not(
    reader: Reader, form: CallForm, write: Write, separator: str
) -> None:
    root = reader.grammar(form)
    call = write("paint", RED)
    for text in ("", "Hm, 好.\n", "a < b <tool", call, separator.join([call, call])):
        assert reader.takes(root, text), text
    for arguments in ('{"color": "blue"}', "{}", "[]"):
        assert not reader.takes(root, write("paint", arguments)), arguments
    assert not reader.takes(root, write("rm", "{}"), whole=False)


@pytest.mark.parametrize("single", [True, False])
def test_text_before_a_tag_does_not_free_what_comes_behind_it(reader: Reader, single: bool) -> None:
    root = reader.grammar(HERMES, single=single)
    call = hermes("paint", RED)
    assert reader.takes(root, "So:\n" + call)
    assert reader.takes(root, "So:\n" + call + "\nDone.")
    assert not reader.takes(root, "So:\n" + hermes("paint", '{"color": 1}'))
    assert not reader.takes(root, "So: <tool_call>Hm", whole=False)
    if not single:
        assert reader.takes(root, call + "\nand\n" + call + " so")
        assert not reader.takes(root, call + "\nand\n" + hermes("rm", "{}"), whole=False)


def test_a_hundred_functions_are_a_grammar_too(qwen: Reader) -> None:
    many = [function(name=f"tool_{i}", parameters=COLOR) for i in range(100)]
    root = qwen.grammar(HERMES, many, must=True)
    assert qwen.takes(root, hermes("tool_99", RED))
    assert not qwen.takes(root, hermes("tool_100", RED))


def test_what_a_strict_functions_schema_cannot_enforce_is_refused(qwen: Reader) -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string", "not": {"const": "b"}}}}
    assert qwen.grammar(HERMES, [function(name="f", parameters=schema)], must=True)
    with pytest.raises(AssertionError, match="not"):
        qwen.grammar(HERMES, [function(name="f", parameters=schema, strict=True)], must=True)


ANSWERS = [
    (Grammar(kind="json_schema", source='{"type": "object", "required": ["n"]}'), '{"n": 1}', "{}"),
    (Grammar(kind="json_object", source=""), '{"n": 1}', "[]"),
    (Grammar(kind="regex", source="[0-9]+"), "12", "x"),
    (Grammar(kind="choice", source='["yes", "no"]'), "yes", "yesno"),
    (Grammar(kind="lark", source='start: A | "b"\nA: /a+/'), "aa", "c"),
]


@pytest.mark.parametrize(("answer", "right", "wrong"), ANSWERS, ids=[answer.kind for answer, _, _ in ANSWERS])
def test_a_structured_answer_begins_behind_the_thoughts(
    reader: Reader, answer: Grammar, right: str, wrong: str
) -> None:
    possible = reader.grammar(None, thoughts="possible", answer=answer)
    for before in ("", "<think>\nHm, {好}\n</think>\n\n", "<think></think>"):
        assert reader.takes(possible, before + right)
        assert not reader.takes(possible, before + wrong)
    begun = reader.grammar(None, thoughts="open", answer=answer)
    assert reader.takes(begun, "\nHm.\n</think>\n\n" + right)
    assert not reader.takes(begun, "\nHm.\n</think>\n\n" + wrong)
    assert not reader.takes(begun, right)


@FORMS
def test_calls_too_come_behind_the_thoughts(qwen: Reader, form: CallForm, write: Write, separator: str) -> None:
    for must in (True, False):
        root = qwen.grammar(form, must=must, thoughts="possible")
        for before in ("", "<think>\nHm.\n</think>\n\n"):
            assert qwen.takes(root, before + write("paint", RED))
            assert not qwen.takes(root, before + write("paint", "{}"))
            assert qwen.takes(root, before + "Four.") is not must


def test_an_answer_is_a_call_or_the_structured_form(reader: Reader) -> None:
    schema = Grammar(kind="json_schema", source='{"type": "object", "properties": {"n": {"type": "integer"}}}')
    for begun in (False, True):
        root = reader.grammar(HERMES, answer=schema, thoughts="open" if begun else "none")
        before = "Hm.</think>\n" if begun else ""
        for text in ('{"n": 1}', hermes("paint", RED), "\n".join([hermes("paint", RED), hermes("停", "{}")])):
            assert reader.takes(root, before + text), text
        for text in ('{"n": "1"}', "Hm", hermes("paint", '{"color": 1}')):
            assert not reader.takes(root, before + text), text
