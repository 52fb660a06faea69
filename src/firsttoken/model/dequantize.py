"""GGUF blocks to float32. The usual types whole arrays at a time (the `gguf` package goes 16 rows at a time, some
twenty times slower); every other type through that package. The same numbers, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from firsttoken.errors import ModelError

_Bytes = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float32]
_BLOCK = 32  # elements


def dequantize(data: _Bytes, ggml_type: int) -> _Floats:
    """Rows of blocks [out, bytes a row] -> [out, in]. Raises ModelError for a type that cannot be read."""
    kind = gguf.GGMLQuantizationType(ggml_type)
    quick = _QUICK.get(kind)
    if quick is not None:
        block_bytes = int(gguf.GGML_QUANT_SIZES[kind][1])
        return quick(data.reshape(data.shape[0], -1, block_bytes)).reshape(data.shape[0], -1)
    try:
        widened: Any = gguf.dequantize(data, kind)
    except NotImplementedError as error:
        raise ModelError(f"GGUF weights of type {kind.name} cannot be read by the installed gguf package.") from error
    return np.ascontiguousarray(widened, dtype=np.float32)


def _scale(blocks: _Bytes, start: int) -> _Floats:
    """The float16 at a byte of each block, as [..., 1]."""
    return np.ascontiguousarray(blocks[..., start : start + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: _Bytes) -> _Floats:
    """16 bytes a block: low halves are the first 16 elements, high halves the rest."""
    out = np.empty((*packed.shape[:-1], _BLOCK), dtype=np.float32)
    out[..., :16] = packed & 15
    out[..., 16:] = packed >> 4
    return out


def _q4_0(blocks: _Bytes) -> _Floats:
    out = _nibbles(blocks[..., 2:])
    out -= 8
    out *= _scale(blocks, 0)
    return out


def _q4_1(blocks: _Bytes) -> _Floats:
    out = _nibbles(blocks[..., 4:])
    out *= _scale(blocks, 0)
    out += _scale(blocks, 2)
    return out


def _q8_0(blocks: _Bytes) -> _Floats:
    out = blocks[..., 2:].view(np.int8).astype(np.float32)
    out *= _scale(blocks, 0)
    return out


_QUICK: dict[gguf.GGMLQuantizationType, Callable[[_Bytes], _Floats]] = {
    gguf.GGMLQuantizationType.Q4_0: _q4_0,
    gguf.GGMLQuantizationType.Q4_1: _q4_1,
    gguf.GGMLQuantizationType.Q8_0: _q8_0,
}
