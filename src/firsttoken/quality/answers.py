"""Greedy answers: alone and in company, how long they took, and how far two sets of them agree."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from firsttoken.llm import LLM, RequestOutput
from firsttoken.quality.records import Agreement
from firsttoken.types import SamplingParams

Ids = list[int]


@dataclass(frozen=True, slots=True)
class Answers:
    """Each question's answer, up to its end."""

    alone: list[Ids]
    company: list[Ids]  # all at once
    tpot: float  # seconds a token alone, the median over the questions
    output_tokens_per_s: float  # of all at once


def answer(llm: LLM, questions: Sequence[str], tokens: int) -> Answers:
    """Answers of `tokens` tokens each."""
    alone: list[Ids] = []
    paces: list[float] = []
    for question in questions:
        _ask(llm, [question], 1)  # the prompt is in the cache from here on
        _, first = _timed(llm, [question], 1)
        results, whole = _timed(llm, [question], tokens)
        alone += results
        paces.append((whole - first) / max(tokens - 1, 1))
    company, seconds = _timed(llm, questions, tokens)
    ends = frozenset(llm.info.eos_token_ids)
    return Answers(
        [_to_end(ids, ends) for ids in alone],
        [_to_end(ids, ends) for ids in company],
        median(paces),
        sum(map(len, company)) / seconds,
    )


def agreement(answers: Sequence[Ids], reference: Sequence[Ids]) -> Agreement:
    """How far answers are the reference's."""
    shared = [_shared(mine, theirs) for mine, theirs in zip(answers, reference, strict=True)]
    return Agreement(
        answers=len(answers),
        same=sum(mine == theirs for mine, theirs in zip(answers, reference, strict=True)),
        shared=sum(shared) / len(shared),
    )


def _shared(mine: Ids, theirs: Ids) -> float:
    same = 0
    while same < min(len(mine), len(theirs)) and mine[same] == theirs[same]:
        same += 1
    return same / max(len(mine), len(theirs))


def _timed(llm: LLM, questions: Sequence[str], tokens: int) -> tuple[list[Ids], float]:
    start = time.perf_counter()
    results = _ask(llm, questions, tokens)
    return [result.outputs[0].token_ids for result in results], time.perf_counter() - start


def _ask(llm: LLM, questions: Sequence[str], tokens: int) -> list[RequestOutput]:
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)  # all of one length, to be timed
    if not llm.tokenizer.has_chat_template:
        return llm.generate(questions, params)
    return llm.chat([[{"role": "user", "content": question}] for question in questions], params)


def _to_end(ids: Ids, ends: frozenset[int]) -> Ids:
    for i, id_ in enumerate(ids):
        if id_ in ends:
            return ids[: i + 1]
    return ids
