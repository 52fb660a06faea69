"""Grammars are compiled beside the step loop, once each, and matchers say what may come next."""

from __future__ import annotations

import json
import threading
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from llguidance import LLTokenizer
from tests.builders import write_tokenizer
from tests.engine.paged_runner import EOS, TOKENS, VOCAB, allowed_by, bench, request, vocabulary

from firsttoken.engine.grammar.compiler import GrammarCompiler
from firsttoken.engine.grammar.matcher import Matcher
from firsttoken.engine.grammar.vocabulary import make_vocabulary, vocabulary_of
from firsttoken.errors import InvalidRequest, QueueFull
from firsttoken.token_table import TokenTable
from firsttoken.types import Grammar


@pytest.fixture
def compiler() -> GrammarCompiler:
    return GrammarCompiler(vocabulary)


def regex(source: str) -> Grammar:
    return Grammar(kind="regex", source=source)


def ids(*texts: str) -> list[int]:
    return sorted(TOKENS.index(text.encode()) for text in texts)


def allowed(matcher: Matcher, *, keep_open: bool = False) -> list[int]:
    mask = np.empty(1, dtype=np.int32)
    assert matcher.fill(mask, keep_open=keep_open)
    return allowed_by(mask)


def state(matcher: Matcher) -> tuple[bool, bool]:
    return matcher.ended, matcher.complete


def test_a_matcher_allows_every_way_to_cut_what_may_come_next(compiler: GrammarCompiler) -> None:
    matcher = compiler.get(regex("abc|d")).matcher(frozenset([EOS]))
    assert allowed(matcher) == ids("a", "ab", "abc", "d")
    matcher.advance(TOKENS.index(b"ab"))
    assert state(matcher) == (False, False)
    assert allowed(matcher) == ids("c")
    matcher.advance(TOKENS.index(b"c"))
    assert state(matcher) == (True, True)
    assert allowed(matcher) == [EOS]


def test_thousands_of_choices_can_be_followed(compiler: GrammarCompiler) -> None:
    choices = ["".join(letters) for letters in product("abcdefgh", repeat=4)]
    matcher = compiler.get(Grammar(kind="choice", source=json.dumps(choices))).matcher(frozenset())
    for text in (b"abc", b"d"):
        assert TOKENS.index(text) in allowed(matcher)
        matcher.advance(TOKENS.index(text))
    assert state(matcher) == (True, True)


def test_matchers_of_one_grammar_go_their_own_ways(compiler: GrammarCompiler) -> None:
    compiled = compiler.get(regex("ab|cd"))
    one, two = compiled.matcher(frozenset()), compiled.matcher(frozenset())
    one.advance(TOKENS.index(b"a"))
    two.advance(TOKENS.index(b"c"))
    assert (allowed(one), allowed(two)) == (ids("b"), ids("d"))


def test_an_end_that_need_not_be_is_held_back_and_one_that_must_be_is_not(compiler: GrammarCompiler) -> None:
    matcher = compiler.get(regex("a{1,2}")).matcher(frozenset([EOS, *ids("b")]))
    matcher.advance(TOKENS.index(b"a"))
    assert allowed(matcher) == [EOS, *ids("a")]
    assert allowed(matcher, keep_open=True) == ids("a")
    matcher.advance(TOKENS.index(b"a"))
    assert allowed(matcher, keep_open=True) == [EOS]


def test_a_dead_end_is_found_out(compiler: GrammarCompiler) -> None:
    matcher = compiler.get(regex("(a|b)(c|d)z")).matcher(frozenset([EOS]))
    for text in (b"a", b"c"):
        matcher.advance(TOKENS.index(text))
    assert not matcher.fill(np.empty(1, dtype=np.int32), keep_open=False)
    assert state(matcher) == (True, False)


def test_a_grammar_is_compiled_once_and_a_refusal_is_remembered(compiler: GrammarCompiler) -> None:
    assert compiler.compile(regex("ab")) is compiler.compile(regex("ab"))
    assert compiler.compile(regex("ab")) is not compiler.compile(Grammar(kind="lark", source="ab"))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="unclosed character class"):
            compiler.get(regex("["))
    assert compiler.compile(regex("[")).done()


def test_the_least_recently_used_grammars_are_forgotten(compiler: GrammarCompiler) -> None:
    first = compiler.compile(regex("a"))
    second = compiler.compile(regex("b"))
    for i in range(126):
        compiler.compile(regex(f"a{{1,{i + 2}}}")).result(5)
    assert compiler.compile(regex("a")) is first
    compiler.compile(regex("c")).result(5)
    assert compiler.compile(regex("a")) is first
    assert compiler.compile(regex("b")) is not second


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (regex("("), "unclosed group"),
        (regex("z"), "no text satisfies it"),
        (Grammar(kind="json_schema", source='{"type": "integer", "minimum": 3, "maximum": 1}'), "Unsatisfiable schema"),
        (
            Grammar(kind="json_schema", source='{"type": "string", "pattern": "([a"}'),
            "invalid regex: unclosed character",
        ),
        (Grammar(kind="json_schema", source="{"), "property name"),
        (Grammar(kind="json_schema", source="false"), "Unsatisfiable schema"),
        (Grammar(kind="lark", source='start: "a" b'), "line 1, column 8"),
        (Grammar(kind="lark", source="start: <|nothing|>"), 'unknown special token: "<|nothing|>"'),
    ],
)
def test_a_refusal_says_what_is_wrong_in_one_sentence(compiler: GrammarCompiler, grammar: Grammar, reason: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        compiler.get(grammar)
    assert reason in error.value.message
    assert "\n" not in error.value.message
    assert error.value.message.startswith("The grammar cannot be used: ")
    assert error.value.code == "invalid_grammar"


def test_grammars_that_compile_slowly_hold_up_nobody_and_only_so_many_may_wait() -> None:
    go = threading.Event()

    def slow() -> LLTokenizer:
        assert go.wait(10)
        return vocabulary()

    compiler = GrammarCompiler(slow, max_seconds=0.01)
    run = bench(grammars=compiler)
    run.engine.add(request("plain", [1, 2], max_tokens=5, ignore_eos=True))
    waits = run.engine.prepare(request("shaped", [1, 2], grammar=regex("ab")))
    assert waits is not None
    with pytest.raises(InvalidRequest, match="it took longer than"):
        run.engine.add(request("impatient", [1, 2], grammar=regex("ab")))
    run.run()
    assert len(run.ids("plain")) == 5
    for i in range(31):
        compiler.compile(regex(f"a{{{i + 2}}}"))
    with pytest.raises(QueueFull):
        compiler.compile(regex("one too many"))
    go.set()
    waits.result(10)
    assert run.engine.prepare(request("shaped", [1, 2], grammar=regex("ab"))) is None
    run.engine.add(request("shaped", [1, 2], grammar=regex("ab")))
    run.run()
    assert b"".join(TOKENS[id_] for id_ in run.ids("shaped")) == b"ab"
    assert run.reason("shaped") == "stop"


def chain_of_rules(length: int) -> Grammar:
    rules = [f'r{i}: "a" r{i + 1} | "b"' for i in range(length)]
    return Grammar(kind="lark", source="\n".join(["start: r0", *rules, f'r{length}: "c"']))


def chain_of_references(length: int) -> Grammar:
    definitions = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(length)}
    schema = {"$defs": {**definitions, f"d{length}": {"enum": ["a"]}}, "$ref": "#/$defs/d0"}
    return Grammar(kind="json_schema", source=json.dumps(schema))


@pytest.mark.parametrize("grammar", [chain_of_rules(6000), chain_of_references(6000)], ids=["rules", "references"])
def test_a_long_chain_of_names_does_not_end_the_process(grammar: Grammar) -> None:
    compiler = GrammarCompiler(vocabulary, max_seconds=60)
    try:
        matcher = compiler.get(grammar).matcher(frozenset())
    except InvalidRequest:
        return
    matcher.fill(np.empty(1, dtype=np.int32), keep_open=False)
    del matcher, compiler


def test_a_grammar_of_enormous_size_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidRequest, match="more than 500000 characters"):
        compiler.get(Grammar(kind="regex", source="a" * 500_001))


def test_an_engine_without_a_vocabulary_refuses_grammars_alone() -> None:
    run = bench()
    with pytest.raises(InvalidRequest, match="cannot be used"):
        run.engine.add(request("shaped", [1], grammar=regex("a")))
    run.engine.add(request("plain", [1], max_tokens=1))
    run.run()
    assert len(run.ids("plain")) == 1


def test_a_sequence_in_a_dead_end_ends_as_cut_short() -> None:
    run = bench(grammars=GrammarCompiler(vocabulary))
    run.engine.add(request("r", [1], grammar=regex("(a|b)(c|d)z")))
    run.run()
    assert len(run.ids("r")) == 2
    assert run.reason("r") == "length"


def test_a_model_without_a_tokeniser_refuses_grammars_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"has no tokenizer\.json"):
        GrammarCompiler(vocabulary_of(str(tmp_path), 10, (1,))).get(regex("a"))
    folder = write_tokenizer(tmp_path / "tokenizer")
    with pytest.raises(InvalidRequest, match="names no end token"):
        GrammarCompiler(vocabulary_of(str(folder), 300, ())).get(regex("a"))


def test_ids_beyond_the_limit_are_never_allowed() -> None:
    table = TokenTable([b"<end>", b"a", b"b", b"ab"], frozenset([0]))
    fewer = GrammarCompiler(lambda: make_vocabulary(table, 3, (0,)))
    assert allowed(fewer.get(regex("[ab]*")).matcher(frozenset())) == [0, 1, 2]
    more = GrammarCompiler(lambda: make_vocabulary(table, VOCAB, (0,)))
    assert allowed(more.get(regex("[ab]*")).matcher(frozenset())) == [0, 1, 2, 3]
