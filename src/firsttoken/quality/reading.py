"""Reads the texts with a model and holds every next-token distribution against the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firsttoken.engine.teacher import Forcing
from firsttoken.llm import LLM
from firsttoken.quality.distance import Piece, compare
from firsttoken.quality.records import WAYS, Way
from firsttoken.quality.reference import Reference
from firsttoken.quality.work import CHUNK, DECODED_FROM


@dataclass(frozen=True, slots=True)
class Reading:
    """The texts as token ids, and where the distributions of their positions lie in the reference."""

    kinds: Sequence[str]  # of each text
    texts: Sequence[Sequence[int]]
    decoded: int  # tokens of each text that come one a step

    def of(self, way: Way) -> list[Sequence[int]]:
        """What goes through the model."""
        if way == "prefill":
            return list(self.texts)
        return [ids[: DECODED_FROM + self.decoded + 1] for ids in self.texts if len(ids) > DECODED_FROM + 1]

    def kinds_of(self, way: Way) -> list[str]:
        needed = 0 if way == "prefill" else DECODED_FROM + 1
        return [kind for kind, ids in zip(self.kinds, self.texts, strict=True) if len(ids) > needed]

    def first_rows(self, way: Way) -> list[int]:
        """The reference's row of each text's first judged position."""
        rows: list[int] = []
        at = 0
        for each in WAYS:
            for ids in self.of(each):
                if each == way:
                    rows.append(at)
                at += len(ids) - 1 - _first(each)
        return rows

    @property
    def rows(self) -> int:
        """Positions that are judged, both ways together."""
        return sum(len(ids) - 1 - _first(way) for way in WAYS for ids in self.of(way))


def read(llm: LLM, reading: Reading, reference: Reference, *, write: bool, company: int = 1) -> Iterator[Piece]:
    """Every judged position, in pieces. With `write` its distributions become the reference."""
    for way in WAYS:
        texts, kinds, rows = reading.of(way), reading.kinds_of(way), reading.first_rows(way)
        how = Forcing(
            chunk=max(CHUNK // company, 1), single_from=DECODED_FROM if way == "decode" else None, company=company
        )
        for scored in llm.force(texts, how):
            start, ids = max(scored.start, _first(way)), texts[scored.text]
            end = min(scored.start + len(scored.logits), len(ids) - 1)  # what follows the last token is not known
            if start >= end:
                continue
            logprobs = _logprobs(scored.logits[start - scored.start : end - scored.start])
            row = rows[scored.text] + start - _first(way)
            found: tuple[Tensor | None, Tensor | None] = None, None
            if write:
                reference.write(row, logprobs)
            else:
                kl, same = compare(logprobs, reference.read(row, end - start, logprobs.device))
                found = kl.cpu(), same.cpu()
            following = torch.tensor(ids[start + 1 : end + 1], device=logprobs.device)
            yield Piece(way, kinds[scored.text], *found, logprobs.gather(1, following[:, None])[:, 0].cpu())


def _logprobs(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.to(torch.float32), dim=-1)


def _first(way: Way) -> int:
    """The first judged position of a text."""
    return 0 if way == "prefill" else DECODED_FROM
