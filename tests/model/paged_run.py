"""Runs a decoder over one sequence through a paged cache whose blocks are out of order, in chunks of any size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firsttoken.kernels.plan import AttentionPlan, KVLayer
from firsttoken.model.decoder import Decoder
from firsttoken.model.rope import RopeTable

BLOCK_SIZE = 16


class PagedRun:
    """The cache and the tokens of one sequence; `prompt_length` is what dynamic RoPE goes by."""

    def __init__(self, decoder: Decoder, prompt_length: int, max_len: int = 256, seed: int = 0) -> None:
        config = decoder.config
        self.decoder, self.prompt_length, self.context = decoder, prompt_length, 0
        self.table = RopeTable(config, max_len)
        blocks = -(-max_len // BLOCK_SIZE)
        shape = (2 * blocks, config.num_kv_heads, BLOCK_SIZE, config.head_dim)
        # a freed block's content is garbage: NaN would show if any of it were read
        self.kv = [
            KVLayer(torch.full(shape, torch.nan), torch.full(shape, torch.nan)) for _ in range(config.num_layers)
        ]
        order = torch.randperm(2 * blocks, generator=torch.Generator().manual_seed(seed))
        self.blocks = order[:blocks].to(torch.int32)

    @torch.inference_mode()
    def step(self, token_ids: Sequence[int]) -> Tensor:
        """Logits [tokens, vocab] of the sequence's next tokens."""
        n, config = len(token_ids), self.decoder.config
        positions = torch.arange(self.context, self.context + n)
        self.context += n
        lengths = (positions + 1).clamp(min=self.prompt_length)
        rope, rope_rows = self.table.rows(positions, lengths)
        plan = AttentionPlan(
            num_heads=config.num_heads,
            scale=config.head_dim**-0.5,
            num_tokens=n,
            num_rows=1,
            num_decode_rows=int(n == 1),
            rope_rows=rope_rows,
            slots=self.blocks[positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE,
            query_start=torch.tensor([0, n], dtype=torch.int32),
            context_lens=torch.tensor([self.context], dtype=torch.int32),
            block_tables=self.blocks[None],
            host_rows=[(0, n, self.context)],
        )
        hidden = self.decoder.forward(torch.tensor(token_ids), self.kv, plan, rope)
        return self.decoder.logits(hidden)


def logits_in_chunks(decoder: Decoder, token_ids: Sequence[int], chunk: int) -> Tensor:
    """Logits [tokens, vocab] of a whole prompt, run `chunk` tokens at a time."""
    run = PagedRun(decoder, prompt_length=len(token_ids))
    return torch.cat([run.step(token_ids[i : i + chunk]) for i in range(0, len(token_ids), chunk)])
