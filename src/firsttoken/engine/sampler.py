"""Per-slot sampling state: parameters on the host, penalty counts on the device, and the step that uses both."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firsttoken.engine.batch import Ints, lazy_zeros, to_device
from firsttoken.engine.step_plan import Masks, PlanRow
from firsttoken.engine.token_bans import BanStep, TokenBans
from firsttoken.kernels import sampling
from firsttoken.kernels.gpu import has_triton
from firsttoken.types import SamplingParams, TokenLogprob

_GREEDY = -2  # a bucket beside those of `kernels.sampling`
_NO_LOGPROBS = -1


@dataclass(frozen=True, slots=True)
class Reset:
    """A slot whose penalty counts start anew from these ids."""

    slot: int
    prompt: Ints
    output: Ints


@dataclass(slots=True)
class SamplingStep:
    """What one step's sampling needs, read from the host state when the step was launched."""

    slots: Ints  # [rows]
    resets: list[Reset]
    groups: dict[int, Ints] = field(default_factory=dict)  # bucket -> rows; empty: every row is plainly greedy
    parameters: dict[str, NDArray[np.generic]] = field(default_factory=dict)  # name -> [rows]
    positions: Ints | None = None  # [rows] of the tokens to draw
    penalized: Ints | None = None  # rows
    edits: tuple[Ints, Ints, NDArray[np.float32]] | None = None  # rows, ids and what is added to their logits
    bans: BanStep | None = None
    guided: Ints | None = None  # rows whose masks come later
    logprob_rows: Ints | None = None
    logprob_counts: list[int] = field(default_factory=list)  # of each of those


@dataclass(frozen=True, slots=True)
class Sampled:
    """Results on the device."""

    ids: Tensor  # [rows] int64
    logprobs: tuple[Tensor, Tensor, Tensor, Tensor] | None  # of the rows that asked, as `kernels.sampling.logprobs`


class Sampler:
    """Chooses the next token of each row. `prepare` runs where plans are made, `sample` where the model runs."""

    def __init__(
        self, *, max_num_seqs: int, vocabulary: int, eos_token_ids: tuple[int, ...], device: torch.device
    ) -> None:
        """`vocabulary` is the number of ids that may be sampled; logits beyond it are padding."""
        self._vocabulary = vocabulary
        self._eos = eos_token_ids
        self._floats = {
            name: np.zeros(max_num_seqs, dtype=np.float32)
            for name in ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
        }
        self._top_k = np.zeros(max_num_seqs, dtype=np.int64)
        self._seeds = np.zeros(max_num_seqs, dtype=np.int64)
        self._buckets = np.full(max_num_seqs, _GREEDY, dtype=np.int64)
        self._penalized = np.zeros(max_num_seqs, dtype=np.bool_)
        self._logprobs = np.full(max_num_seqs, _NO_LOGPROBS, dtype=np.int64)
        self._plain = np.ones(max_num_seqs, dtype=np.bool_)  # greedy and nothing else
        self._bias: list[tuple[Ints, NDArray[np.float32]] | None] = [None] * max_num_seqs
        self._banned: list[Ints | None] = [None] * max_num_seqs  # until min_tokens are there
        self._bans = TokenBans(max_num_seqs, vocabulary, device)
        self._guided = np.zeros(max_num_seqs, dtype=np.bool_)  # by a grammar
        self._counts = lazy_zeros((max_num_seqs, vocabulary), torch.int32, device)
        self._in_prompt = lazy_zeros((max_num_seqs, vocabulary), torch.bool, device)
        self._device = device
        self._draws_by_kernel = device.type == "cuda" and has_triton()

    def prepare(self, rows: Many[PlanRow], sampling_rows: Many[PlanRow]) -> SamplingStep:
        """Takes in the fresh ones of all the plan's rows, and says how to sample the rows that do."""
        resets = [reset for row in rows if row.fresh and (reset := self._admit(row)) is not None]
        slots = np.array([row.seq.slot for row in sampling_rows], dtype=np.int64)
        step = SamplingStep(slots=slots, resets=resets)
        if self._plain[slots].all():
            return step
        buckets = self._buckets[slots]
        step.groups = {int(bucket): (buckets == bucket).nonzero()[0] for bucket in np.unique(buckets)}
        step.parameters = {name: values[slots] for name, values in self._floats.items()}
        step.parameters |= {"top_k": self._top_k[slots], "seeds": self._seeds[slots]}
        step.positions = np.array([row.end for row in sampling_rows], dtype=np.int64)
        if self._penalized[slots].any():
            step.penalized = self._penalized[slots].nonzero()[0]
        step.edits = self._edits(sampling_rows)
        step.bans = self._bans.prepare(sampling_rows)
        if self._guided[slots].any():
            step.guided = self._guided[slots].nonzero()[0]
        counts = self._logprobs[slots]
        if (counts != _NO_LOGPROBS).any():
            step.logprob_rows = (counts != _NO_LOGPROBS).nonzero()[0]
            step.logprob_counts = counts[step.logprob_rows].tolist()
        return step

    def sample(self, logits: Tensor, step: SamplingStep, masks: Masks | None = None) -> Sampled:
        """logits [rows, at least vocabulary] float32, which may be overwritten; `masks`: of the guided rows."""
        self.reset(step)
        logits = logits[:, : self._vocabulary]
        if not step.groups:
            return Sampled(sampling.greedy(logits), None)
        logprob_rows = None if step.logprob_rows is None else self._tensor(step.logprob_rows)
        own = None if logprob_rows is None else logits[logprob_rows]  # before anything changes them
        logits = self._shape(sampling.sanitize(logits), step)
        if step.guided is not None and masks is not None:
            sampling.forbid(logits, self._tensor(step.guided), self._tensor(masks))
        ids = self._choose(logits, step)
        if step.penalized is not None:
            rows = self._tensor(step.penalized)
            self._counts[self._tensor(step.slots)[rows], ids[rows]] += 1
        if step.bans is not None:
            self._bans.remember(step.bans, ids)
        if own is None:
            return Sampled(ids, None)
        return Sampled(ids, sampling.logprobs(own, ids[logprob_rows], max(step.logprob_counts)))

    def reset(self, step: SamplingStep) -> None:
        """Takes over slots that changed hands. `sample` does so too: this is for a step that samples nothing."""
        for reset in step.resets:
            counts = self._counts[reset.slot].zero_()
            output = self._tensor(reset.output)
            counts.index_put_((output,), torch.ones_like(output, dtype=torch.int32), accumulate=True)
            self._in_prompt[reset.slot].zero_()[self._tensor(reset.prompt)] = True

    def _admit(self, row: PlanRow) -> Reset | None:
        """Fills the slot from the sequence; the counts to rebuild where it has penalties."""
        seq, slot = row.seq, row.seq.slot
        params = seq.request.sampling
        greedy = params.temperature < sampling.GREEDY_BELOW
        self._floats["temperature"][slot] = 1.0 if greedy else params.temperature
        self._floats["top_p"][slot] = params.top_p
        self._floats["min_p"][slot] = params.min_p
        self._floats["repetition"][slot] = params.repetition_penalty
        self._floats["presence"][slot] = params.presence_penalty
        self._floats["frequency"][slot] = params.frequency_penalty
        self._top_k[slot] = max(params.top_k, 0)
        self._seeds[slot] = np.uint64(seq.seed & 0xFFFF_FFFF_FFFF_FFFF).astype(np.int64)
        bucket = sampling.bucket_of(params.top_k, params.top_p, self._vocabulary)
        self._buckets[slot] = _GREEDY if greedy else bucket
        self._logprobs[slot] = _NO_LOGPROBS if params.logprobs is None else params.logprobs
        self._bias[slot] = _bias(params)
        self._banned[slot] = self._banned_ids(params)
        self._bans.admit(slot, params)
        self._guided[slot] = params.grammar is not None
        penalized = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) != (1.0, 0.0, 0.0)
        self._penalized[slot] = penalized
        self._plain[slot] = (
            greedy
            and not penalized
            and params.logprobs is None
            and self._bias[slot] is None
            and self._banned[slot] is None
            and not self._bans.restrict(slot)
            and params.grammar is None
        )
        if not penalized:
            return None
        ids = np.array(seq.token_ids, dtype=np.int64)
        return Reset(slot, ids[: seq.num_prompt_tokens], ids[seq.num_prompt_tokens :])

    def _banned_ids(self, params: SamplingParams) -> Ints | None:
        if params.min_tokens <= 0 or params.grammar is not None:  # a grammar's masks see to it
            return None
        ids = {*params.stop_token_ids, *(() if params.ignore_eos else self._eos)}
        return np.array(sorted(id_ for id_ in ids if id_ < self._vocabulary), dtype=np.int64)

    def _edits(self, rows: Many[PlanRow]) -> tuple[Ints, Ints, NDArray[np.float32]] | None:
        """Logit biases, and -inf for end ids of rows that still lack their min_tokens."""
        parts: list[tuple[int, Ints, NDArray[np.float32]]] = []
        for i, row in enumerate(rows):
            if (bias := self._bias[row.seq.slot]) is not None:
                parts.append((i, *bias))
            banned = self._banned[row.seq.slot]
            if banned is not None and row.end - row.seq.num_prompt_tokens < row.seq.request.sampling.min_tokens:
                parts.append((i, banned, np.full(len(banned), -np.inf, dtype=np.float32)))
        if not parts:
            return None
        index = np.repeat([i for i, _, _ in parts], [len(ids) for _, ids, _ in parts])
        return index, np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])

    def _shape(self, logits: Tensor, step: SamplingStep) -> Tensor:
        """Logits after penalties, biases and bans."""
        if step.penalized is not None:
            rows = self._tensor(step.penalized)
            slots = self._tensor(step.slots)[rows]
            repetition, presence, frequency = (
                self._tensor(step.parameters[name][step.penalized]) for name in ("repetition", "presence", "frequency")
            )
            logits[rows] = sampling.penalize(
                logits[rows], self._counts[slots], self._in_prompt[slots], repetition, presence, frequency
            )
        if step.edits is not None:
            index, ids, values = (self._tensor(part) for part in step.edits)
            logits.index_put_((index, ids), values, accumulate=True)
        if step.bans is not None:
            self._bans.apply(step.bans, logits)
        return logits

    def _choose(self, logits: Tensor, step: SamplingStep) -> Tensor:
        assert step.positions is not None
        ids = torch.empty(len(step.slots), dtype=torch.int64, device=self._device)
        for bucket, members in step.groups.items():
            whole = len(members) == len(step.slots)
            rows = self._tensor(members)
            some = logits if whole else logits[rows]
            if bucket == _GREEDY:
                ids[rows] = some.max(dim=-1).indices
                continue
            if self._draws_by_kernel and bucket == sampling.TOP_K_BUCKETS[0]:
                ids[rows] = self._draw_top(some, step, members)
                continue
            uniform = sampling.uniforms(
                self._tensor(step.parameters["seeds"][members]), self._tensor(step.positions[members])
            )
            temperature, top_k, top_p, min_p = (
                self._tensor(step.parameters[name][members]) for name in ("temperature", "top_k", "top_p", "min_p")
            )
            ids[rows] = sampling.draw(some, bucket, temperature, top_k, top_p, min_p, uniform)
        return ids

    def _draw_top(self, logits: Tensor, step: SamplingStep, members: Ints) -> Tensor:
        """One copy to the device and two kernels."""
        from firsttoken.kernels.gpu.draw import draw_top

        assert step.positions is not None
        seeds, positions = (torch.from_numpy(a[members]) for a in (step.parameters["seeds"], step.positions))
        uniform = sampling.uniforms(seeds, positions).numpy()
        given = [step.parameters[name][members] for name in ("temperature", "top_k", "top_p", "min_p")]
        return draw_top(logits, self._tensor(np.stack([*given, uniform]).astype(np.float64)))

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        return to_device(array, self._device)


def _bias(params: SamplingParams) -> tuple[Ints, NDArray[np.float32]] | None:
    if not params.logit_bias:
        return None
    ids = np.array(list(params.logit_bias), dtype=np.int64)
    return ids, np.array(list(params.logit_bias.values()), dtype=np.float32)


def token_logprobs(
    ids: list[int], parts: tuple[Tensor, Tensor, Tensor, Tensor], counts: list[int]
) -> list[TokenLogprob]:
    """The host's form of `kernels.sampling.logprobs`, one entry an id; counts[i] is how many likeliest ids it keeps."""
    chosen, ranks, top_ids, top_values = (part.tolist() for part in parts)
    return [
        TokenLogprob(id_, chosen[i], ranks[i], list(zip(top_ids[i][:k], top_values[i][:k], strict=True)))
        for i, (id_, k) in enumerate(zip(ids, counts, strict=True))
    ]
