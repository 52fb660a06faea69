"""Measures one side of a comparison, in the process that it is called in."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from firsttoken.errors import ConfigError
from firsttoken.llm import LLM
from firsttoken.quality import needle
from firsttoken.quality.answers import Answers, answer
from firsttoken.quality.distance import distances, perplexities
from firsttoken.quality.passages import KINDS, passages, questions
from firsttoken.quality.reading import Reading, read
from firsttoken.quality.records import Distance, Needle, Side
from firsttoken.quality.reference import Reference
from firsttoken.quality.work import LONG_LENGTHS, SHORT_LENGTHS, Work
from firsttoken.types import SamplingParams

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a side found."""

    side: Side
    distances: list[Distance]  # from the reference; the reference's own in company
    answers: Answers
    texts: list[list[int]]
    lengths: tuple[int, ...]  # of the needles


def measure(work: Work, tell: Tell) -> Finding:
    """Loads the model and measures everything. Raises ConfigError, ModelError, OutOfMemory or InvalidRequest."""
    tell("loading")
    begin = time.perf_counter()
    with LLM(work.settings.model, **work.settings.options) as llm:
        started = time.perf_counter() - begin
        texts = _texts(llm, work)
        lengths = _lengths(llm, work)
        tell("greedy answers")
        answers = answer(llm, questions(), work.amount.answer_tokens)
        tell("needles")
        found, ttft = _needles(llm, lengths)
        peak = _peak_bytes(llm)  # before the reference's file counts as this process's memory
        reading = Reading([each.kind for each in passages()], texts, work.amount.decoded)
        reference = Reference(work.reference, reading.rows, llm.info.token_id_limit, create=work.is_reference)
        tell("reading texts")
        pieces = list(read(llm, reading, reference, write=work.is_reference))
        judged = pieces
        if work.is_reference:
            tell("reading texts in company")
            company = min(len(texts), llm.info.max_num_seqs)
            judged = list(read(llm, reading, reference, write=False, company=company))
        info = llm.info
        side = Side(
            settings=work.settings.shown,
            model=info.model,
            device=f"{info.device} ({info.device_name})",
            dtype=info.dtype,
            weights=info.weights,
            attention=info.attention,
            weight_bytes=info.weight_bytes,
            kv_bytes_per_token=info.kv_bytes_per_token,
            kv_tokens=info.num_blocks * info.block_size,
            peak_bytes=peak,
            start_seconds=started,
            tpot=answers.tpot,
            output_tokens_per_s=answers.output_tokens_per_s,
            ttft=ttft,
            perplexity=perplexities(pieces, KINDS),
            needles=found,
        )
        return Finding(side, distances(judged, KINDS), answers, texts, lengths)


def _texts(llm: LLM, work: Work) -> list[list[int]]:
    """Token ids, which must be the reference's."""
    wanted = [llm.tokenizer.encode(each.text)[: work.amount.tokens] for each in passages()]
    if work.is_reference:
        return [ids[: llm.info.max_model_len] for ids in wanted]
    known = work.texts
    if any(mine[: len(theirs)] != theirs for mine, theirs in zip(wanted, known, strict=True)):
        raise ConfigError("A and B have different tokenisers, so that their distributions cannot be compared.")
    return known


def _lengths(llm: LLM, work: Work) -> tuple[int, ...]:
    longest = llm.info.max_model_len - needle.ANSWER_TOKENS
    asked = work.lengths or work.amount.lengths
    if asked and max(asked) > longest:
        raise ConfigError(
            f"A needle's text of {max(asked)} tokens does not fit the context of {llm.info.max_model_len}; use "
            f"--needle-lengths of {longest} at most."
        )
    defaults = SHORT_LENGTHS if llm.info.device == "cpu" else LONG_LENGTHS
    return asked or tuple(dict.fromkeys(min(length, longest) for length in defaults))


def _needles(llm: LLM, lengths: tuple[int, ...]) -> tuple[list[Needle], float]:
    """What was found at each length, and the seconds to the first token of the longest prompt."""
    greedy = SamplingParams(temperature=0.0, max_tokens=needle.ANSWER_TOKENS)
    haystack = [each.text for each in passages() if each.kind == "english"]
    found: list[Needle] = []
    ttft = 0.0
    for length in lengths:
        made = needle.prompts(haystack, length, lambda text: len(llm.tokenizer.encode(text)))
        begin = time.perf_counter()
        llm.generate(made[0].text, replace(greedy, max_tokens=1))
        ttft = time.perf_counter() - begin
        results = [llm.generate(prompt.text, greedy)[0] for prompt in made]
        found.append(
            Needle(
                tokens=max(len(result.prompt_token_ids) for result in results),
                asked=len(made),
                found=sum(p.found_in(r.outputs[0].text) for p, r in zip(made, results, strict=True)),
            )
        )
    return found, ttft


def _peak_bytes(llm: LLM) -> int:
    if llm.info.device != "cpu":
        return torch.cuda.max_memory_reserved()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
