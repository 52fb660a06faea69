"""What keeping to a grammar costs: compiling it, a mask a token, and the whole server beside plain requests.

`costs FOLDER_OR_FILE...` times the engine's own compiler and matchers on a model's vocabulary, and xgrammar's where it
is installed; `server` asks a running demo for plain and for structured answers in turns. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import http.client
import importlib
import json
import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken.cli.local_server import free_port, local_server
from firsttoken.engine.grammar.compiler import GrammarCompiler
from firsttoken.engine.grammar.vocabulary import make_vocabulary
from firsttoken.model.config import load_config
from firsttoken.model.hub import resolve
from firsttoken.token_table import token_table
from firsttoken.tokenizer import Tokenizer
from firsttoken.types import Grammar

RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street", "city", "zip"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"enum": ["friend", "family", "work", "other"]}},
    },
    "required": ["name", "age", "address", "tags"],
    "additionalProperties": False,
}
ANSWER = (
    '{"name": "Jonathan Appleseed of the Northern Valley", "age": 42, "address": {"street": "12 Long Orchard Road", '
    '"city": "Springfield", "zip": "01234"}, "tags": ["friend", "work"]}'
)
LONG_CHOICE = [f"word number {i}" for i in range(5000)]
CASES: dict[str, tuple[Grammar, str]] = {
    "a record of seven fields": (Grammar(kind="json_schema", source=json.dumps(RECORD)), ANSWER),
    "any JSON object": (Grammar(kind="json_object", source=""), ANSWER),
    "an expression": (Grammar(kind="regex", source=r"[a-z.]+@[a-z]+\.(com|org)"), "jonathan.appleseed@example.org"),
    "one of 5,000 texts": (Grammar(kind="choice", source=json.dumps(LONG_CHOICE)), "word number 4321"),
}
LISTS = {"type": "array", "items": RECORD, "minItems": 1000}  # goes on for longer than any answer here


# --- costs of a library ---


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds to compile; microseconds of the first mask, of later ones (median and largest) and of a token."""

    compile_ms: float
    first_us: float
    mask_us: float
    worst_us: float
    advance_us: float


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def walk(compile_ms: float, ids: list[int], fill: Callable[[], Any], advance: Callable[[int], Any]) -> Cost:
    masks, advances = [], []
    for token_id in ids:
        masks.append(timed(fill) * 1e6)
        advances.append(timed(lambda token_id=token_id: advance(token_id)) * 1e6)  # type: ignore[misc]
    return Cost(compile_ms, masks[0], statistics.median(masks[1:]), max(masks[1:]), statistics.median(advances))


def ours(compiler: GrammarCompiler, grammar: Grammar, ids: list[int], words: int) -> Cost:
    import numpy as np

    compiled = None

    def compile_it() -> None:
        nonlocal compiled
        compiled = compiler.get(grammar)

    compile_ms = timed(compile_it) * 1000
    assert compiled is not None
    matcher = compiled.matcher(frozenset())
    mask = np.empty(words, dtype=np.int32)
    cost = walk(compile_ms, ids, lambda: matcher.fill(mask, keep_open=False), matcher.advance)
    assert matcher.complete
    return cost


def xgrammars(xgrammar: Any, compiler: Any, grammar: Grammar, ids: list[int], limit: int) -> Cost:
    compiled = None

    def compile_it() -> None:
        nonlocal compiled
        if grammar.kind == "json_schema":
            compiled = compiler.compile_json_schema(grammar.source)
        elif grammar.kind == "json_object":
            compiled = compiler.compile_builtin_json_grammar()
        elif grammar.kind == "regex":
            compiled = compiler.compile_regex(grammar.source)
        else:
            choices = " | ".join(map(json.dumps, json.loads(grammar.source)))
            compiled = compiler.compile_grammar(f"root ::= {choices}")

    compile_ms = timed(compile_it) * 1000
    matcher = xgrammar.GrammarMatcher(compiled)
    mask = xgrammar.allocate_token_bitmask(1, limit)
    cost = walk(compile_ms, ids, lambda: matcher.fill_next_token_bitmask(mask), matcher.accept_token)
    assert matcher.is_completed() or matcher.is_terminated()
    return cost


def print_costs(path: Path, rounds: int) -> None:
    tokenizer = Tokenizer.load(path)
    table = token_table(path)
    limit = len(table.tokens)
    ends = tokenizer.eos_token_ids or (load_config(path).eos_token_ids if path.is_file() else ())
    vocabulary = make_vocabulary(table, limit, ends)
    read_ms = min(timed(lambda: token_table(path)) for _ in range(3)) * 1000
    made_ms = min(timed(lambda: make_vocabulary(table, limit, ends)) for _ in range(3)) * 1000
    print(f"\n{path.name}, {limit} ids: bytes read in {read_ms:.0f} ms, llguidance's tree made in {made_ms:.0f} ms\n")
    print("| | library | compile, ms | first mask, µs | later masks, median and largest, µs | a token taken, µs |")
    print("|---|---|---|---|---|---|")
    try:
        xgrammar: Any = importlib.import_module("xgrammar")
    except ImportError:
        xgrammar = None
    for name, (grammar, answer) in CASES.items():
        ids = tokenizer.encode(answer, add_special_tokens=False)
        costs: dict[str, list[Cost]] = {}
        for _ in range(rounds):
            fresh = GrammarCompiler(lambda: vocabulary)
            costs.setdefault("llguidance", []).append(ours(fresh, grammar, ids, -(-limit // 32)))
            if xgrammar is not None:
                info = xgrammar.TokenizerInfo(table.tokens, stop_token_ids=list(ends))
                compiler = xgrammar.GrammarCompiler(info, cache_enabled=False, max_threads=2)
                costs.setdefault("xgrammar", []).append(xgrammars(xgrammar, compiler, grammar, ids, limit))
        for library, found in costs.items():
            middle = {field: statistics.median(getattr(cost, field) for cost in found) for field in Cost.__slots__}
            print(
                f"| {name} | {library} | {middle['compile_ms']:.1f} | {middle['first_us']:.0f} "
                f"| {middle['mask_us']:.0f}, {middle['worst_us']:.0f} | {middle['advance_us']:.0f} |"
            )


# --- the whole server ---


def ask(port: int, ids: list[int], max_tokens: int, fields: dict[str, Any], times: list[tuple[float, float]]) -> None:
    """Appends seconds to the first token and to the last one."""
    body = {"prompt": ids, "max_tokens": max_tokens, "ignore_eos": True, "stream": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    start = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"the server refused: {response.read().decode(errors='replace')}")
    first = last = 0.0
    for line in response:
        if line.startswith(b"data: {"):
            last = time.perf_counter() - start
            first = first or last
    connection.close()
    times.append((first, last))


def many(port: int, prompts: list[list[int]], max_tokens: int, fields: dict[str, Any]) -> float:
    """Tokens a second over all of them, from the first request to the last token."""
    times: list[tuple[float, float]] = []
    threads = [threading.Thread(target=ask, args=(port, ids, max_tokens, fields, times)) for ids in prompts]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == len(prompts)
    return len(prompts) * max_tokens / (time.perf_counter() - start)


def print_server(model: str, rounds: int) -> None:
    rng = random.Random(0)
    kinds: dict[str, dict[str, Any]] = {
        "greedy": {"temperature": 0},
        "sampled": {"temperature": 0.7, "top_p": 0.8, "top_k": 20},
    }
    forms: dict[str, dict[str, Any]] = {"plain": {}, "structured": {"structured_outputs": {"json": LISTS}}}
    ttft: dict[tuple[str, str], list[float]] = {(kind, form): [] for kind in kinds for form in forms}
    speed: dict[tuple[str, str], list[float]] = {key: [] for key in ttft}

    def prompt(length: int) -> list[int]:
        return [rng.randrange(1000, 40000) for _ in range(length)]

    port = free_port(0)
    with local_server([str(resolve(model)), "--max-num-seqs", "16", "--max-model-len", "1024"], port=port):
        for sampling in kinds.values():  # what first requests pay, the compilation too
            for form in forms.values():
                many(port, [prompt(32) for _ in range(16)], 8, sampling | form)
        for number in range(rounds):
            order = list(ttft)
            if number % 2:
                order.reverse()
            for kind, form in order * 6:
                times: list[tuple[float, float]] = []
                ask(port, prompt(64), 1, kinds[kind] | forms[form], times)
                ttft[kind, form].append(times[0][0])
            for kind, form in order:
                speed[kind, form].append(many(port, [prompt(32) for _ in range(16)], 32, kinds[kind] | forms[form]))
    print("\n| | TTFT, 64-token prompt, ms | sixteen at once, tok/s |\n|---|---|---|")
    for key in ttft:
        print(
            f"| {key[0]}, {key[1]} | {statistics.median(ttft[key]) * 1000:.1f} | {statistics.median(speed[key]):.0f} |"
        )
    for kind in kinds:
        slower = [s / p - 1 for p, s in zip(ttft[kind, "plain"], ttft[kind, "structured"], strict=True)]
        ratio = [s / p - 1 for p, s in zip(speed[kind, "plain"], speed[kind, "structured"], strict=True)]
        print(
            f"{kind}: TTFT {statistics.median(slower):+.1%}, tok/s {statistics.median(ratio):+.1%} (medians of pairs)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    costs = commands.add_parser("costs")
    costs.add_argument("models", nargs="+", type=Path, help="folders with tokenizer.json, or .gguf files")
    costs.add_argument("--rounds", type=int, default=5)
    server = commands.add_parser("server")
    server.add_argument("--model", default="demo")
    server.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    if options.command == "server":
        print_server(options.model, options.rounds)
        return
    for path in options.models:
        print_costs(path, options.rounds)


if __name__ == "__main__":
    main()
