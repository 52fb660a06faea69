"""The Triton forms against the torch reference in float64: interpreted on a CPU, compiled where there is a GPU."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from firsttoken.kernels import e4m3, reference
from firsttoken.kernels.linear import DenseLinear, Norm
from firsttoken.kernels.plan import CHUNK_TILE, LONG_CHUNK_TILE, AttentionPlan, ChunkTiles, KVLayer, Rope, TokenRows

INTERPRETED = not torch.cuda.is_available()
pytest.importorskip("triton")

from firsttoken.kernels.gpu import attend, ops  # noqa: E402
from firsttoken.kernels.gpu.launch import DENSE, Op, Product, row_tile  # noqa: E402
from firsttoken.kernels.gpu.launch_table import table_for  # noqa: E402
from firsttoken.kernels.gpu.prepare import prepare_rows_kernel  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float32 if INTERPRETED else torch.bfloat16
BOUND = 1e-5 if INTERPRETED else 6e-3  # of the relative error
FP8_BOUND = 1e-3 if INTERPRETED else 6e-3  # queries and weights meet E4M3 keys and values as float16


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    torch.manual_seed(seed)
    print(f"seed {seed}")  # shown where a test fails


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=DTYPE, device=DEVICE)


def _norm(width: int) -> Norm:
    return Norm((torch.rand(width, device=DEVICE) + 0.5).to(DTYPE), 1e-6)


def _linear(out: int, width: int, *, bias: bool) -> DenseLinear:
    return DenseLinear(_random(out, width) / width**0.5, _random(out) if bias else None)


def _wide(norm: Norm) -> Norm:
    return Norm(norm.weight.double(), norm.eps, norm.folded)


def _wide_linear(linear: DenseLinear) -> DenseLinear:
    return DenseLinear(linear.weight.double(), None if linear.bias is None else linear.bias.double())


def _error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


MATVECS = [{"bn": 4, "bk": 64, "ahead": ahead} for ahead in (1, 2, 3)] + [{"bn": 1, "bk": 128, "ahead": 2}]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", MATVECS, ids=lambda s: f"ahead{s['ahead']}-{s['bn']}x{s['bk']}")
@pytest.mark.parametrize("bias", [False, True])
def test_matvec_gives_every_product_of_a_layer(rows: int, shape: dict[str, int], bias: bool) -> None:
    _check_products(rows, k=200, n=37, bias=bias, form="matvec", **shape)  # neither divides its tile


@pytest.mark.parametrize("rows", [1, 5, 16])
@pytest.mark.parametrize("bn", [16, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_dot_gives_every_product_of_a_layer(rows: int, bn: int, bias: bool) -> None:
    _check_products(rows, k=192, n=72, bias=bias, form="dot", bn=bn, bk=64, stages=2)


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("splits", [2, 3])
def test_a_product_split_along_its_inputs_adds_up(rows: int, splits: int) -> None:
    x, residual, weight = _random(rows, 192), _random(rows, 72), _linear(72, 192, bias=True)
    expected = reference.linear_add(x.double(), _wide_linear(weight), residual.double())
    for _ in range(2):  # the counters are as they were
        launch = Product(op="linear_add", n=72, k=192, rows=rows, form="dot", bn=16, bk=32, stages=2, splits=splits)
        assert _error(ops.linear_add(x, weight, residual, launch=launch), expected) < BOUND


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED, reason="races show on a GPU only, in shapes that keep many tiles under way")
@pytest.mark.parametrize("rows", [3, 9, 16])
def test_measured_launches_are_right_at_the_shapes_they_were_measured_for(rows: int) -> None:
    for product in table_for("NVIDIA H200").products:
        if product.weight == DENSE and (product.form == "dot" or product.rows == rows):
            how = {
                name: getattr(product, name) for name in ("bn", "bk", "warps", "ahead", "stages", "prefetch", "splits")
            }
            _check_products(rows, k=product.k, n=min(product.n, 9728), bias=False, form=product.form, **how)


@pytest.mark.parametrize("rows", [17, 65])
def test_library_products_meet_the_same_reference(rows: int) -> None:
    _check_products(rows, k=96, n=40, bias=True, form="library")


def _check_products(rows: int, *, k: int, n: int, bias: bool, **how: Any) -> None:
    x, residual = _random(rows, k), _random(rows, n)
    norm, plain, paired = _norm(k), _linear(n, k, bias=bias), _linear(2 * n, k, bias=bias)
    folded = Norm(torch.ones_like(norm.weight), norm.eps, folded=True)

    splits = how.pop("splits", 1)

    def launch(op: Op) -> Product:
        return Product(op=op, n=n, k=k, rows=rows, splits=splits if op == "linear_add" else 1, **how)

    for each in (norm, folded):
        out = ops.norm_linear(x, each, plain, torch.float32, launch=launch("norm_linear"))
        assert out.dtype == torch.float32
        assert _error(out, reference.norm_linear(x.double(), _wide(each), _wide_linear(plain))) < BOUND
    out = ops.norm_linear_swiglu(x, norm, paired, launch=launch("norm_linear_swiglu"))
    assert _error(out, reference.norm_linear_swiglu(x.double(), _wide(norm), _wide_linear(paired))) < BOUND
    expected = reference.linear_add(x.double(), _wide_linear(plain), residual.double())
    out = ops.linear_add(x, plain, residual, launch=launch("linear_add"))
    assert _error(out, expected) < BOUND


Norms = tuple[Norm | None, Norm | None]

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 8, 2, 64, 16
TILE = row_tile(torch.device(DEVICE), HEAD_DIM, 1).tokens
WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM


class _Paged:
    """A cache of random keys and values, and sequences with shuffled block tables over it."""

    def __init__(self, sequences: int, longest: int, *, fp8: bool = False) -> None:
        blocks = -(-longest // BLOCK)
        self.bound = FP8_BOUND if fp8 else BOUND
        k, v = (_random(sequences * blocks + 1, KV_HEADS, BLOCK, HEAD_DIM) for _ in range(2))
        self.kv = KVLayer(k, v)
        if fp8:
            scales = torch.exp2(torch.rand(2, KV_HEADS, device=DEVICE) * 10 - 7)  # a checkpoint's are no powers of two
            k, v = (e4m3.encode(x, scale[:, None, None]) for x, scale in zip((k, v), scales, strict=True))
            self.kv = KVLayer(k, v, scales)
        self.tables = (torch.randperm(sequences * blocks, device=DEVICE) + 1).view(sequences, blocks).int()
        angles = torch.rand(longest, HEAD_DIM // 2, device=DEVICE) * 6
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
            num_heads=HEADS,
            scale=HEAD_DIM**-0.5,
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
        q_norm, k_norm = (None if norm is None else _wide(norm) for norm in norms)
        rope = Rope(self.rope.cos.double(), self.rope.sin.double())
        return reference.attention(qkv.double(), q_norm, k_norm, rope, kv, plan), kv


def _keys_and_values(kv: KVLayer) -> Tensor:
    """[2, blocks, kv_heads, block_size, head_dim] as numbers."""
    both = torch.stack([kv.k, kv.v])
    return both if kv.scales is None else e4m3.decode(both, kv.scales[:, None, :, None, None])


def _token_rows(plan: AttentionPlan, sequences: list[int], *, fused: bool, parts: int) -> TokenRows:
    """Cuts every row into `parts`, or as many as it has tiles."""
    tokens = len(sequences)
    listed: list[tuple[int, int, int, int, int, int]] = []
    for row, sequence in enumerate(sequences):
        if plan.slots[row] >= 0:
            cached = int(plan.rope_rows[row]) + 1 - fused
            size = max(math.ceil(cached / parts / TILE), 1) * TILE
            count = max(-(-cached // size), 1)
            listed += [(row, sequence, i * size, min((i + 1) * size, cached), i, count) for i in range(count)]
    listed += [(-1, 0, 0, 0, 0, 0)] * 3
    return TokenRows(
        count=tokens,
        fused=fused,
        tables=plan.block_tables,
        parts=torch.tensor(listed, dtype=torch.int32, device=DEVICE).T.contiguous(),
        partial=torch.full((len(listed), KV_HEADS, HEADS // KV_HEADS, HEAD_DIM), float("nan"), device=DEVICE),
        partial_ml=torch.full((len(listed), KV_HEADS, 2, HEADS // KV_HEADS), float("nan"), device=DEVICE),
        arrivals=torch.zeros(tokens, KV_HEADS, dtype=torch.int32, device=DEVICE),
    )


@pytest.mark.parametrize(
    ("qk_norm", "parts", "fp8"),
    [(norm, parts, False) for norm in (False, True) for parts in (1, 2, 4, 40)] + [(True, 1, True), (True, 4, True)],
)
def test_decode_rows_match_and_their_keys_and_values_are_kept(qk_norm: bool, parts: int, fp8: bool) -> None:
    contexts = [1, 63, 64, 65, 200, 333] + [2600] * (parts == 40)  # up to 40 parts
    paged = _Paged(len(contexts), max(contexts), fp8=fp8)
    plan = paged.plan([(context - 1, 1) for context in contexts], padding=2)
    plan.rows = _token_rows(plan, [*range(len(contexts)), 0, 0], fused=True, parts=parts)
    norms: Norms = (_norm(HEAD_DIM), _norm(HEAD_DIM)) if qk_norm else (None, None)
    qkv = _random(len(contexts) + 2, WIDTH)
    expected, kv = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    real = len(contexts)
    assert _error(out[:real], expected[:real]) < paged.bound
    assert _error(_keys_and_values(paged.kv), _keys_and_values(kv)) < paged.bound
    assert not plan.rows.arrivals.any(), "the counters are as they were for the next step"


@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_tokens_of_one_sequence_each_see_those_before_them(fp8: bool) -> None:
    spans = [(0, 5), (70, 3), (130, 1)]
    paged = _Paged(3, 140, fp8=fp8)
    plan = paged.plan(spans, padding=3)
    plan.rows = _token_rows(plan, [0] * 5 + [1] * 3 + [2] + [0] * 3, fused=False, parts=4)
    norms = (_norm(HEAD_DIM), _norm(HEAD_DIM))
    qkv = _random(12, WIDTH)
    expected, kv = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert _error(out[:9], expected[:9]) < paged.bound
    assert _error(_keys_and_values(paged.kv), _keys_and_values(kv)) < paged.bound


CHUNKS = [[(0, 40)], [(0, 40), (0, 7)], [(64, 30)], [(100, 3), (0, 50), (33, 1), (31, 33)]]


@pytest.mark.parametrize("tile", [CHUNK_TILE, LONG_CHUNK_TILE])
@pytest.mark.parametrize(("spans", "fp8"), [*((each, False) for each in CHUNKS), ([(64, 30), (0, 7)], True)], ids=str)
def test_chunks_see_what_was_cached_and_their_own_past(spans: list[tuple[int, int]], tile: int, fp8: bool) -> None:
    paged = _Paged(len(spans), max(old + new for old, new in spans), fp8=fp8)
    plan = paged.plan(spans, padding=5)
    sequences = [sequence for sequence, (_, new) in enumerate(spans) for _ in range(new)] + [0] * 5
    plan.chunks = _chunk_tiles(plan, sequences, padding=2, tile=tile)
    norms = (_norm(HEAD_DIM), _norm(HEAD_DIM))
    qkv = _random(len(sequences), WIDTH)
    expected, kv = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert _error(out[: plan.num_tokens], expected[: plan.num_tokens]) < paged.bound
    assert _error(_keys_and_values(paged.kv), _keys_and_values(kv)) < paged.bound


@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_decode_rows_and_chunks_share_a_step(fp8: bool) -> None:
    spans = [(70, 1), (9, 1), (0, 45), (20, 12)]
    paged = _Paged(len(spans), 80, fp8=fp8)
    plan = paged.plan(spans)
    sequences = [sequence for sequence, (_, new) in enumerate(spans) for _ in range(new)]
    plan.rows = _token_rows(plan, sequences[:2], fused=True, parts=4)
    plan.chunks = _chunk_tiles(plan, sequences, first=2)
    norms = (_norm(HEAD_DIM), _norm(HEAD_DIM))
    qkv = _random(len(sequences), WIDTH)
    expected, _ = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert _error(out, expected) < paged.bound


def test_the_library_takes_the_beginning_of_a_fresh_prompt() -> None:
    paged = _Paged(1, 100)
    plan = paged.plan([(0, 100)])
    plan.chunks = _chunk_tiles(plan, [0] * 100, first=64, library=(0, 64))
    norms = (_norm(HEAD_DIM), _norm(HEAD_DIM))
    qkv = _random(100, WIDTH)
    expected, _ = paged.expected(qkv, norms, plan)

    out = attend.attention(qkv, norms[0], norms[1], paged.rope, paged.kv, plan)

    assert _error(out, expected) < BOUND


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


def test_the_h200_table_covers_a_decode_step_of_the_4b_model() -> None:
    table = table_for("NVIDIA H200")
    products: list[tuple[Op, int, int]] = [
        ("norm_linear", 6144, 2560),
        ("linear_add", 2560, 4096),
        ("norm_linear_swiglu", 9728, 2560),
        ("linear_add", 2560, 9728),
        ("norm_linear", 151936, 2560),
    ]
    for op, n, k in products:
        assert any((p.op, p.n, p.k, p.rows) == (op, n, k, 1) for p in table.products)
        assert table.pick(op, n, k, 1).form == "matvec"
        assert table.pick(op, n, k, 300).form == "library"


def test_an_unknown_card_gets_launches_that_fit_any_shape() -> None:
    table = table_for("NVIDIA GeForce RTX 9999")
    assert not table.products
    assert table.pick("norm_linear", 100, 96, 1).form == "matvec"
    assert table.pick("norm_linear", 100, 96, 8).form == "library", "96 is no multiple of the tile"
    assert table.pick("norm_linear", 100, 128, 8).form == "dot"
