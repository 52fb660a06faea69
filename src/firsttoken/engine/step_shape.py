"""Which padded shape a batch runs in on a GPU, and where its tokens lie in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.engine.batch import Batch
from firsttoken.kernels.gpu.launch import DOT_ROWS
from firsttoken.kernels.plan import CHUNK_TILE, LONG_CHUNK_TILE

DECODE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKEN_BUCKETS = (16, 32, 64, 128)
MIXED_BUCKETS = tuple((single, chunk) for chunk in (256, 512, 1024, 2048) for single in (0, 16, 64, 256))
LIBRARY_LENGTHS = (*range(2048, 8192, 512), *range(8192, 32769, 2048), *range(36864, 262145, 4096))  # tokens
"""Prompt beginnings that cuDNN's attention takes: it prepares for each length anew, so there are few of them."""
ROW_GRAINS = ((512, 64), (4096, 256), (8192, 512), (262144, 1024))  # up to so many rows, multiples of so many
SPARE_TILES = 32  # of a mixed shape, beyond those of one long chunk
LONG_CHUNK = (960, 8192)  # new tokens and context from which larger tiles pay, and more than a graph's launch saves

Tile = tuple[int, int]  # first token, tokens


@dataclass(frozen=True, slots=True)
class StepShape:
    """The layout of a step's tokens: `single` ones that the split attention runs, then `chunk` tokens of prompts.

    A batch with fewer is padded in both parts. `fused`: no two single tokens are of one sequence. `tile`: the most
    tokens of a tile.
    """

    single: int
    fused: bool
    chunk: int = 0
    tiles: int = 0  # of the chunk part, at most
    tile: int = CHUNK_TILE

    @property
    def rows(self) -> int:
        return self.single + self.chunk

    @property
    def size(self) -> int:
        """Numbers that the host sends."""
        return 3 * self.rows + 2 * self.tiles

    @property
    def decodes(self) -> bool:
        """Whether every token is a decode row's, whose logits are wanted."""
        return self.fused and not self.chunk

    def fit(self, batch: Batch) -> list[Tile] | None:
        """The tiles of the batch in this shape (none of single tokens), or None where it does not fit."""
        tokens, decodes = len(batch.token_ids), batch.num_decode_rows
        if not self.chunk:
            return [] if tokens <= self.single and (not self.fused or decodes == tokens) else None
        if decodes > self.single or tokens - decodes > self.chunk or decodes == tokens:
            return None
        tiles = tiles_of(batch, decodes, self.single - decodes)
        return tiles if len(tiles) <= self.tiles else None


def decode_buckets(max_num_seqs: int, sizes: Sequence[int] = DECODE_BUCKETS) -> list[int]:
    """Those of the sizes that so many sequences use: all that are too small for them, and the first that is not."""
    ordered = sorted(set(sizes))
    return [size for size, smaller in zip(ordered, [0, *ordered], strict=False) if smaller < max_num_seqs]


def buckets(max_num_seqs: int, max_num_batched_tokens: int, sizes: Sequence[int] = DECODE_BUCKETS) -> list[StepShape]:
    """Every shape worth a graph under these limits, the fewest rows first; of equally many, decode rows first.

    `sizes` are the rows of decode steps.
    """
    shapes = [StepShape(rows, True) for rows in decode_buckets(max_num_seqs, sizes)]
    shapes += [StepShape(rows, False) for rows in TOKEN_BUCKETS if rows < 2 * max_num_batched_tokens]
    for single, chunk in MIXED_BUCKETS:
        if chunk < 2 * max_num_batched_tokens and single < 2 * max_num_seqs:
            shapes.append(StepShape(single, True, chunk, chunk // CHUNK_TILE + SPARE_TILES))
    return sorted(shapes, key=lambda shape: shape.rows)


def most_numbers(max_num_seqs: int, max_num_batched_tokens: int, sizes: Sequence[int] = DECODE_BUCKETS) -> int:
    """The most numbers that the host sends for a step under these limits, padded into a bucket or not."""
    tiles = max_num_batched_tokens // CHUNK_TILE + max_num_seqs + 1  # every chunk may end in a tile of its own
    unpadded = StepShape(max_num_seqs, True, round_rows(max_num_batched_tokens), tiles)
    return max(shape.size for shape in (unpadded, *buckets(max_num_seqs, max_num_batched_tokens, sizes)))


def tiles_of(batch: Batch, first: int, shift: int = 0, tile: int = CHUNK_TILE) -> list[Tile]:
    """Each tile of the chunks from token `first` on, their tokens moved up by `shift`."""
    return [
        (token + shift, min(tile, end - token))
        for start, end, _ in batch.host_rows
        if start >= first
        for token in range(start, end, tile)
    ]


def is_long(batch: Batch) -> bool:
    """Whether larger tiles pay for the batch's chunks."""
    tokens, context = LONG_CHUNK
    return any(end - start >= tokens and total >= context for start, end, total in batch.host_rows)


def unpadded_shape(batch: Batch, library: Tile | None) -> tuple[StepShape, list[Tile]]:
    """The shape of a step without a graph, and its tiles. `library`: tokens that need none.

    Beside chunks its rows are padded too, to few counts, for the library's products prepare for each count anew.
    """
    single, tokens = batch.num_decode_rows, len(batch.token_ids)
    tile = LONG_CHUNK_TILE if is_long(batch) else CHUNK_TILE
    tiles = [t for t in tiles_of(batch, single, tile=tile) if library is None or t[0] >= library[1]]
    rows = tokens if tokens == single else round_rows(tokens)
    return StepShape(single, True, rows - single, len(tiles), tile), tiles


def sampled_rows(rows: int) -> int:
    """How many rows get logits where so many are wanted: beyond our own kernels' few, one of a few counts."""
    return next((size for size in DECODE_BUCKETS if rows <= size), rows) if rows > DOT_ROWS else rows


def rounded_rows(most: int) -> list[int]:
    """Every row count up to `most` that steps without a graph have."""
    counts: list[int] = []
    while not counts or counts[-1] < most:
        counts.append(round_rows(counts[-1] + 1 if counts else 1))
    return counts


def round_rows(rows: int) -> int:
    """The next row count that steps without a graph have."""
    grain = next((grain for most, grain in ROW_GRAINS if rows <= most), ROW_GRAINS[-1][1])
    return -(-rows // grain) * grain


def library_span(batch: Batch) -> Tile | None:
    """Of a lone prompt that starts afresh: the tokens [start, end) at its beginning that cuDNN's attention takes.

    None beside decode rows: such a prompt comes in chunks of many lengths, of which only the first would be fresh.
    """
    if len(batch.host_rows) != 1:
        return None
    start, end, context = batch.host_rows[0]
    lengths = [length for length in LIBRARY_LENGTHS if length <= end - start]
    if context != end - start or not lengths:
        return None
    return start, start + max(lengths)
