"""What attention needs to know of a step: where rows belong and where their keys and values lie."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from firsttoken.kernels import e4m3

CHUNK_TILE = 16  # query tokens a program of a GPU's chunk attention: 64 rows with a group of four heads
LONG_CHUNK_TILE = 32  # over long contexts, where reading each key for more queries pays


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotation tables. A plan's `rope_rows` picks one row a token."""

    cos: Tensor  # [rows, head_dim / 2] float32, attention scaling (yarn) included
    sin: Tensor  # [rows, head_dim / 2] float32


@dataclass(frozen=True, slots=True)
class KVLayer:
    """One layer's paged cache. A flat slot is block * block_size + offset."""

    k: Tensor  # [num_blocks, kv_heads, block_size, head_dim]
    v: Tensor  # [num_blocks, kv_heads, block_size, head_dim]
    # [2, kv_heads] float32, of keys and of values: k and v are then E4M3 numbers in uint8, in units of these
    scales: Tensor | None = None

    @property
    def num_kv_heads(self) -> int:
        return self.k.shape[1]

    @property
    def block_size(self) -> int:
        return self.k.shape[2]

    @property
    def head_dim(self) -> int:
        return self.k.shape[3]

    def write(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores k and v [n, kv_heads, head_dim] at flat slots [n]."""
        block, offset = slots // self.block_size, slots % self.block_size
        if self.scales is not None:
            k, v = e4m3.encode(k, self.scales[0, :, None]), e4m3.encode(v, self.scales[1, :, None])
        self.k[block, :, offset] = k.to(self.k.dtype)
        self.v[block, :, offset] = v.to(self.v.dtype)

    def gather(self, block_table: Tensor, context: int) -> tuple[Tensor, Tensor]:
        """The first `context` keys and values of one sequence, each [context, kv_heads, head_dim]; E4M3 as float32."""
        used = block_table[: -(-context // self.block_size)].long()

        def rows(cache: Tensor) -> Tensor:
            return cache[used].transpose(1, 2).reshape(-1, self.num_kv_heads, self.head_dim)[:context]

        k, v = rows(self.k), rows(self.v)
        if self.scales is None:
            return k, v
        return e4m3.decode(k, self.scales[0, :, None]), e4m3.decode(v, self.scales[1, :, None])


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Tokens that a GPU's split attention runs singly, each over its own context, and that kernel's working space."""

    count: int  # leading tokens of the batch, padding included
    fused: bool  # no two of one sequence: QK-norm, RoPE and the KV write happen in the same kernel
    tables: Tensor  # [sequences, width] int32 block tables
    parts: Tensor  # [6, parts] int32: what each program reads, see `kernels.gpu.row_attention`
    partial: Tensor  # [parts, kv_heads, heads of a group, head_dim] float32
    partial_ml: Tensor  # [parts, kv_heads, 2, heads of a group] float32
    arrivals: Tensor  # [count, kv_heads] int32, zero between steps


@dataclass(frozen=True, slots=True)
class ChunkTiles:
    """Prompt tokens on a GPU, cut into tiles of neighbours. The per-token tensors are indexed by the batch's tokens."""

    tiles: Tensor  # [2, tiles] int32: first token and count; 0 is padding
    contexts: Tensor  # [tokens] int32, the token itself included
    table_rows: Tensor  # [tokens] int32, row of `tables`
    tables: Tensor  # [sequences, width] int32 block tables
    tile: int = CHUNK_TILE  # the most tokens a tile has
    library: tuple[int, int] | None = None  # tokens of a prompt's beginning that the library's kernel takes instead


@dataclass(slots=True)
class AttentionPlan:
    """One step's batch as attention sees it. Tensors live on the model's device; host copies steer Python.

    Rows are sequences; each has `query_start[r+1] - query_start[r]` new tokens, the last ones of its context.
    Decode rows (one token) come first. Tensors may be padded beyond `num_tokens` and `num_rows`: padding tokens have
    slot -1, padding rows have a context of 0.
    """

    num_heads: int
    scale: float  # of the scores
    num_tokens: int  # real query rows
    num_rows: int  # real sequences
    num_decode_rows: int  # leading rows with exactly one token
    rope_rows: Tensor  # [tokens] int64, row of the Rope tables
    slots: Tensor  # [tokens] int64 flat cache slot of the token's own key and value
    query_start: Tensor  # [rows + 1] int32
    context_lens: Tensor  # [rows] int32, tokens in the cache after this step's write
    block_tables: Tensor  # [rows, max_blocks] int32
    host_rows: list[tuple[int, int, int]]  # (query start, query end, context) a real row
    rows: TokenRows | None = None  # on a GPU only
    chunks: ChunkTiles | None = None  # likewise
