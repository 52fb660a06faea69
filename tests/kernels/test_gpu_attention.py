"""The Triton forms of attention, and what prepares it, against the torch reference in float64: as test_gpu_kernels."""

from __future__ import annotations

import math
import os
import warnings

import pytest
import torch
from tests.kernels.gpu_numbers import (
    BOUND,
    DEVICE,
    INTERPRETED,
    INTERPRETER,
    random,
    random_norm,
    relative_error,
    wide_norm,
)
from torch import Tensor

from firsttoken.kernels import e4m3, reference
from firsttoken.kernels.linear import Norm
from firsttoken.kernels.plan import CHUNK_TILE, LONG_CHUNK_TILE, AttentionPlan, ChunkTiles, KVLayer, Rope, TokenRows

triton = pytest.importorskip("triton", INTERPRETER)

from firsttoken.kernels.gpu import attend  # noqa: E402
from firsttoken.kernels.gpu.launch import row_tile  # noqa: E402
from firsttoken.kernels.gpu.prepare import prepare_rows_kernel  # noqa: E402

FP8_BOUND = 1e-3 if INTERPRETED else 6e-3  # queries and weights meet E4M3 keys and values as float16


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    torch.manual_seed(seed)
    print(f"seed {seed}")  # shown where a test fails


Norms = tuple[Norm | None, Norm | None]

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 8, 2, 64, 16
TILES = {fp8: row_tile(torch.device(DEVICE), HEAD_DIM, 1, fp8_cache=fp8) for fp8 in (False, True)}
WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM


class _Paged:
    """A cache of random keys and values, and sequences with shuffled block tables over it."""

    def __init__(
        self,
        sequences: int,
        longest: int,
        *,
        fp8: bool = False,
        heads: tuple[int, int, int] = (HEADS, KV_HEADS, HEAD_DIM),
    ) -> None:
        """`heads`: query heads, KV heads, and the size of each."""
        blocks = -(-longest // BLOCK)
        self.bound = FP8_BOUND if fp8 else BOUND
        self.heads, kv_heads, self.head_dim = heads
        k, v = (random(sequences * blocks + 1, kv_heads, BLOCK, self.head_dim) for _ in range(2))
        self.kv = KVLayer(k, v)
        if fp8:
            scales = torch.exp2(torch.rand(2, kv_heads, device=DEVICE) * 10 - 7)  # a checkpoint's are no powers of two
            k, v = (e4m3.encode(x, scale[:, None, None]) for x, scale in zip((k, v), scales, strict=True))
            self.kv = KVLayer(k, v, scales)
        self.tables = (torch.randperm(sequences * blocks, device=DEVICE) + 1).view(sequences, blocks).int()
        angles = torch.rand(longest, self.head_dim // 2, device=DEVICE) * 6
        self.rope = Rope(angles.cos(), angles.sin())

    def slot(self, sequence: int, position: int) -> int:
        return int(self.tables[sequence, position // BLOCK]) * BLOCK + position % BLOCK

    def plan(self, spans: list[tuple[int, int]], padding: int = 0) -> AttentionPlan:
        """spans: (tokens already there, new tokens) of sequences 0, 1, ...; `padding` tokens follow."""
        positions: list[int] = []
        slots: list[int] = []
        starts = [0]
        for sequence, (old, new) in enumerate(spans):
            positions += range(old, old + new)
            slots += [self.slot(sequence, p) for p in range(old, old + new)]
            starts.append(starts[-1] + new)
        contexts = [old + new for old, new in spans]
        return AttentionPlan(
            num_heads=self.heads,
            scale=self.head_dim**-0.5,
            num_tokens=starts[-1],
            num_rows=len(spans),
            num_decode_rows=0,
            rope_rows=torch.tensor(positions + [0] * padding, device=DEVICE),
            slots=torch.tensor(slots + [-1] * padding, device=DEVICE),
            query_start=torch.tensor(starts, dtype=torch.int32, device=DEVICE),
            context_lens=torch.tensor(contexts, dtype=torch.int32, device=DEVICE),
            block_tables=self.tables,
            host_rows=[(starts[i], starts[i + 1], contexts[i]) for i in range(len(spans))],
        )

    def expected(self, qkv: Tensor, norms: Norms, plan: AttentionPlan) -> tuple[Tensor, KVLayer]:
        kv = KVLayer(self.kv.k.double(), self.kv.v.double())
        if self.kv.scales is not None:
            kv = KVLayer(self.kv.k.clone(), self.kv.v.clone(), self.kv.scales)
        q_norm, k_norm = (None if norm is None else wide_norm(norm) for norm in norms)
        rope = Rope(self.rope.cos.double(), self.rope.sin.double())
        return reference.attention(qkv.double(), q_norm, k_norm, rope, kv, plan), kv


def _keys_and_values(kv: KVLayer) -> Tensor:
    """[2, blocks, kv_heads, block_size, head_dim] as numbers."""
    both = torch.stack([kv.k, kv.v])
    return both if kv.scales is None else e4m3.decode(both, kv.scales[:, None, :, None, None])


def _token_rows(
    plan: AttentionPlan,
    sequences: list[int],
    *,
    fused: bool,
    parts: int,
    kv_heads: int = KV_HEADS,
    head_dim: int = HEAD_DIM,
    tile: int = TILES[False].tokens,
) -> TokenRows:
    """Cuts every row into `parts`, or as many as it has tiles."""
    tokens, group = len(sequences), triton.next_power_of_2(plan.num_heads // kv_heads)
    listed: list[tuple[int, int, int, int, int, int]] = []
    for row, sequence in enumerate(sequences):
        if plan.slots[row] >= 0:
            cached = int(plan.rope_rows[row]) + 1 - fused
            size = max(math.ceil(cached / parts / tile), 1) * tile
            count = max(-(-cached // size), 1)
            listed += [(row, sequence, i * size, min((i + 1) * size, cached), i, count) for i in range(count)]
    listed += [(-1, 0, 0, 0, 0, 0)] * 3
    return TokenRows(
        count=tokens,
        fused=fused,
        tables=plan.block_tables,
        parts=torch.tensor(listed, dtype=torch.int32, device=DEVICE).T.contiguous(),
        partial=torch.full((len(listed), kv_heads, group, head_dim), float("nan"), device=DEVICE),
        partial_ml=torch.full((len(listed), kv_heads, 2, group), float("nan"), device=DEVICE),
        arrivals=torch.zeros(tokens, kv_heads, dtype=torch.int32, device=DEVICE),
    )


@pytest.mark.parametrize(
    ("qk_norm", "parts", "fp8"),
    [(norm, parts, False) for norm in (False, True) for parts in (1, 2, 4, 40)]
    + [(True, parts, True) for parts in (1, 4, 40)],
)
def test_decode_rows_match_and_their_keys_and_values_are_kept(qk_norm: bool, parts: int, fp8: bool) -> None:
    tile = TILES[fp8].tokens
    contexts = [1, 63, 64, 65, 200, 333] + [40 * tile + 40] * (parts == 40)  # up to 40 parts
    paged = _Paged(len(contexts), max(contexts), fp8=fp8)
    plan = paged.plan([(context - 1, 1) for context in contexts], padding=2)
    plan.rows = _token_rows(plan, [*range(len(contexts)), 0, 0], fused=True, parts=parts, tile=tile)
    norms: Norms = (random_norm(HEAD_DIM), random_norm(HEAD_DIM)) if qk_norm else (None, None)
    qkv = random(len(contexts) + 2, WIDTH)
    expected, kv = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    real = len(contexts)
    assert relative_error(out[:real], expected[:real]) < paged.bound
    assert relative_error(_keys_and_values(paged.kv), _keys_and_values(kv)) < paged.bound
    assert not plan.rows.arrivals.any(), "the counters are as they were for the next step"


# Query heads that are no power of two a KV head, more than the matrix units' smallest tile of them, and other sizes
@pytest.mark.parametrize("heads", [(6, 2, 32), (7, 1, 128), (20, 1, 64), (24, 1, 64), (5, 1, 256)], ids=str)
@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_heads_of_every_shape_are_attended_with(heads: tuple[int, int, int], fp8: bool) -> None:
    num_heads, kv_heads, head_dim = heads
    spans = [(0, 1), (200, 1), (30, 20), (0, 9)]
    paged = _Paged(len(spans), 210, fp8=fp8, heads=heads)
    plan = paged.plan(spans)
    sequences = [sequence for sequence, (_, new) in enumerate(spans) for _ in range(new)]
    plan.rows = _token_rows(plan, sequences[:2], fused=True, parts=3, kv_heads=kv_heads, head_dim=head_dim)
    plan.chunks = _chunk_tiles(plan, sequences, first=2)
    norms = (random_norm(head_dim), random_norm(head_dim))
    qkv = random(len(sequences), (num_heads + 2 * kv_heads) * head_dim)
    expected, _ = paged.expected(qkv, norms, plan)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter's, of heads that are padding
        out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    for row, each in enumerate(expected):  # a head that is left out would be lost in the sum of all
        wide, here = each.view(num_heads, head_dim), out[row].view(num_heads, head_dim)
        assert max(relative_error(a, b) for a, b in zip(here, wide, strict=True)) < 3 * paged.bound


@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_many_decode_rows_ask_for_their_first_tiles_ahead_too(fp8: bool) -> None:
    """From 17 rows on the kernel has another form. Parts fill a turn of the merge exactly, or are one more."""
    tile = TILES[fp8].tokens
    turn = TILES[fp8].merge * tile
    contexts = [1, 64, 65, *([7, 130, 333] * 6), turn + 1, turn + 2]
    paged = _Paged(len(contexts), max(contexts), fp8=fp8)
    plan = paged.plan([(context - 1, 1) for context in contexts])
    plan.rows = _token_rows(plan, [*range(len(contexts))], fused=True, parts=40, tile=tile)
    norms = (random_norm(HEAD_DIM), random_norm(HEAD_DIM))
    qkv = random(len(contexts), WIDTH)
    expected, _ = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    for row in range(len(contexts)):
        assert relative_error(out[row], expected[row]) < 3 * paged.bound
    assert not plan.rows.arrivals.any()


@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_tokens_of_one_sequence_each_see_those_before_them(fp8: bool) -> None:
    spans = [(0, 5), (70, 3), (130, 1)]
    paged = _Paged(3, 140, fp8=fp8)
    plan = paged.plan(spans, padding=3)
    plan.rows = _token_rows(plan, [0] * 5 + [1] * 3 + [2] + [0] * 3, fused=False, parts=4)
    norms = (random_norm(HEAD_DIM), random_norm(HEAD_DIM))
    qkv = random(12, WIDTH)
    expected, kv = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert relative_error(out[:9], expected[:9]) < paged.bound
    assert relative_error(_keys_and_values(paged.kv), _keys_and_values(kv)) < paged.bound


CHUNKS = [[(0, 40)], [(0, 40), (0, 7)], [(64, 30)], [(100, 3), (0, 50), (33, 1), (31, 33)]]


@pytest.mark.parametrize("tile", [CHUNK_TILE, LONG_CHUNK_TILE])
@pytest.mark.parametrize(("spans", "fp8"), [*((each, False) for each in CHUNKS), ([(64, 30), (0, 7)], True)], ids=str)
def test_chunks_see_what_was_cached_and_their_own_past(spans: list[tuple[int, int]], tile: int, fp8: bool) -> None:
    paged = _Paged(len(spans), max(old + new for old, new in spans), fp8=fp8)
    plan = paged.plan(spans, padding=5)
    sequences = [sequence for sequence, (_, new) in enumerate(spans) for _ in range(new)] + [0] * 5
    plan.chunks = _chunk_tiles(plan, sequences, padding=2, tile=tile)
    norms = (random_norm(HEAD_DIM), random_norm(HEAD_DIM))
    qkv = random(len(sequences), WIDTH)
    expected, kv = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert relative_error(out[: plan.num_tokens], expected[: plan.num_tokens]) < paged.bound
    assert relative_error(_keys_and_values(paged.kv), _keys_and_values(kv)) < paged.bound


@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_decode_rows_and_chunks_share_a_step(fp8: bool) -> None:
    spans = [(70, 1), (9, 1), (0, 45), (20, 12)]
    paged = _Paged(len(spans), 80, fp8=fp8)
    plan = paged.plan(spans)
    sequences = [sequence for sequence, (_, new) in enumerate(spans) for _ in range(new)]
    plan.rows = _token_rows(plan, sequences[:2], fused=True, parts=4)
    plan.chunks = _chunk_tiles(plan, sequences, first=2)
    norms = (random_norm(HEAD_DIM), random_norm(HEAD_DIM))
    qkv = random(len(sequences), WIDTH)
    expected, _ = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert relative_error(out, expected) < paged.bound


def test_the_library_takes_the_beginning_of_a_fresh_prompt() -> None:
    paged = _Paged(1, 100)
    plan = paged.plan([(0, 100)])
    plan.chunks = _chunk_tiles(plan, [0] * 100, first=64, library=(0, 64))
    norms = (random_norm(HEAD_DIM), random_norm(HEAD_DIM))
    qkv = random(100, WIDTH)
    expected, _ = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert relative_error(out, expected) < BOUND


def _chunk_tiles(
    plan: AttentionPlan,
    sequences: list[int],
    *,
    first: int = 0,
    padding: int = 0,
    library: tuple[int, int] | None = None,
    tile: int = CHUNK_TILE,
) -> ChunkTiles:
    tiles: list[tuple[int, int]] = []
    for start, end, _ in plan.host_rows:
        begin = max(start, first)
        tiles += [(token, min(tile, end - token)) for token in range(begin, end, tile)]
    tiles += [(0, 0)] * padding
    return ChunkTiles(
        tiles=torch.tensor(tiles, dtype=torch.int32, device=DEVICE).T.contiguous(),
        contexts=((plan.rope_rows + 1) * (plan.slots >= 0)).int(),
        table_rows=torch.tensor(sequences, dtype=torch.int32, device=DEVICE),
        tables=plan.block_tables,
        tile=tile,
        library=library,
    )


def test_a_step_is_prepared_from_what_the_host_sent() -> None:
    tables = torch.arange(12, dtype=torch.int32, device=DEVICE).view(3, 4) + 5
    last_ids = torch.tensor([70, 71, 72], device=DEVICE)
    inputs = torch.tensor([[9, -1, 0], [2, 1, 0], [17, 3, 0]], dtype=torch.int32, device=DEVICE)
    token_ids, rope_rows, slots = (torch.full((3,), -7, dtype=torch.int64, device=DEVICE) for _ in range(3))
    parts = torch.full((6, 5), -7, dtype=torch.int32, device=DEVICE)
    prepare_rows_kernel[(1,)](
        inputs, last_ids, tables, 4, token_ids, rope_rows, slots, parts, 5, 4, 3, 2, 8, 1,
        ROWS_PAD=4, PARTS_PAD=8, BLOCK=16, KV_HEADS=2,
    )  # fmt: skip
    assert token_ids.tolist() == [9, 71, 0]
    assert rope_rows.tolist() == [16, 2, 0]
    assert slots.tolist() == [int(tables[2, 1]) * 16, int(tables[1, 0]) * 16 + 2, -1]
    # 16 and 2 tokens in 2 KV heads over 4 programs: 9 a program, so parts of two tiles at most
    assert parts[0].tolist() == [0, 1, -1, -1, -1]
    assert parts[1:, :2].T.tolist() == [[2, 0, 16, 0, 1], [1, 0, 2, 0, 1]]


def test_a_long_context_is_cut_into_parts_as_long_as_the_others() -> None:
    contexts = [5, 1, 300, 0, 40]
    inputs = torch.tensor([[0] * 5, [3, 0, 2, 0, 1], contexts], dtype=torch.int32, device=DEVICE)
    ids = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    out = [torch.empty(5, dtype=torch.int64, device=DEVICE) for _ in range(3)]
    parts = torch.full((6, 13), -7, dtype=torch.int32, device=DEVICE)
    tables = torch.zeros(4, 20, dtype=torch.int32, device=DEVICE)
    prepare_rows_kernel[(1,)](
        inputs, ids, tables, 20, *out, parts, 13, 16, 5, 5, 16, 0,
        ROWS_PAD=8, PARTS_PAD=16, BLOCK=16, KV_HEADS=2,
    )  # fmt: skip
    # 346 tokens in 2 KV heads over 16 programs: 44 a program, so parts of three tiles at most
    assert parts[0].tolist() == [0, 1, *[2] * 7, 4, -1, -1, -1]
    assert parts[2:4, 2:9].T.tolist() == [[48 * i, min(48 * i + 48, 300)] for i in range(7)]
    assert parts[4:, :10].T.tolist() == [[0, 1], [0, 1], *([i, 7] for i in range(7)), [0, 1]]
