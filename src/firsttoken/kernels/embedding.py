"""Token ids to the first activations."""

from __future__ import annotations

from torch import Tensor

from firsttoken.kernels import reference
from firsttoken.kernels.gpu import on_gpu


def embedding(token_ids: Tensor, weight: Tensor) -> Tensor:
    """[tokens] int64, [vocab, hidden] -> [tokens, hidden]."""
    if on_gpu(weight):
        from firsttoken.kernels.gpu import ops as gpu

        return gpu.embedding(token_ids, weight)
    return reference.embedding(token_ids, weight)
