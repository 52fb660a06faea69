"""Weights of a GGUF file, any type that the `gguf` package reads, under Hugging Face's names and row order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch

from firsttoken.errors import ModelError
from firsttoken.model.config import ModelConfig
from firsttoken.model.gguf_header import GGUFHeader, GGUFTensor
from firsttoken.model.tensor_names import EMBEDDING, FINAL_NORM, HEAD, expected_tensors, named
from firsttoken.model.weights import RawWeight

_TOP = {EMBEDDING: "token_embd.weight", FINAL_NORM: "output_norm.weight", HEAD: "output.weight"}
_IN_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_DENSE: dict[int, tuple[type[np.generic], torch.dtype]] = {
    int(gguf.GGMLQuantizationType.F32): (np.float32, torch.float32),
    int(gguf.GGMLQuantizationType.F16): (np.float16, torch.float16),
    int(gguf.GGMLQuantizationType.BF16): (np.int16, torch.bfloat16),
}
_NOT_WEIGHTS = ("rope_freqs.weight",)  # read with the config


class GGUFWeights:
    """A WeightSource over one mapped GGUF file. Opening it checks every name and shape against the config.

    Raises ModelError, in one sentence that names the first offenders.
    """

    def __init__(self, path: Path, config: ModelConfig) -> None:
        with GGUFHeader(path) as header:
            self._tensors = header.tensors
            architecture = header.get("general.architecture")
        # llama's converter interleaves each head's halves; NeoX order, which every op here takes, keeps them apart
        self._interleaved = (
            {"q_proj": config.num_heads, "k_proj": config.num_kv_heads} if architecture == "llama" else {}
        )
        self._bytes: npt.NDArray[np.uint8] = np.memmap(path, mode="c", dtype=np.uint8)
        self._check(path, config)

    def take(self, name: str) -> RawWeight:
        """A view of the mapped file; a copy where rows had to be put in order."""
        tensor = self._tensors[gguf_name(name)]
        rows = self._rows(tensor)
        heads = next((heads for part, heads in self._interleaved.items() if f".{part}." in name), None)
        if heads is not None:
            rows = _apart(rows, heads)
        if tensor.ggml_type not in _DENSE:
            return RawWeight(name, tensor.shape, data=rows, ggml_type=tensor.ggml_type)
        as_numpy, as_torch = _DENSE[tensor.ggml_type]
        dense = torch.from_numpy(rows.reshape(-1).view(as_numpy)).view(as_torch)
        return RawWeight(name, tensor.shape, tensor=dense.view(tensor.shape))

    def kv_scales(self) -> None:
        """The format has none."""

    def _rows(self, tensor: GGUFTensor) -> npt.NDArray[np.uint8]:
        """The tensor's bytes, [out, bytes a row] (a vector's elements count as rows)."""
        per_block, block_bytes = _block(tensor.ggml_type)
        elements = int(np.prod(tensor.shape))
        data = self._bytes[tensor.offset : tensor.offset + elements // per_block * block_bytes]
        return data.reshape(tensor.shape[0], -1)

    def _check(self, path: Path, config: ModelConfig) -> None:
        expected = {gguf_name(name): shape for name, shape in expected_tensors(config).items()}
        missing = [name for name in expected if name not in self._tensors]
        if missing:
            raise ModelError(f"{path} lacks tensors that {config.architecture} needs: {named(missing)}.")
        surplus = [name for name in self._tensors if name not in expected and name not in _NOT_WEIGHTS]
        if surplus:
            raise ModelError(f"{path} has tensors that {config.architecture} has no place for: {named(surplus)}.")
        for name, shape in expected.items():
            tensor = self._tensors[name]
            if tensor.shape != shape:
                raise ModelError(
                    f"{path}: {name} has the shape {list(tensor.shape)}, but its metadata asks for {list(shape)}."
                )
            per_block, block_bytes = _block(tensor.ggml_type)
            if tensor.offset + int(np.prod(shape)) // per_block * block_bytes > self._bytes.size:
                raise ModelError(f"{path} is cut short: {name} is not all there; fetch the file again.")


def gguf_name(name: str) -> str:
    """A Hugging Face tensor name as llama.cpp writes it."""
    if name in _TOP:
        return _TOP[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_IN_LAYER[module]}.{kind}"


def _block(ggml_type: int) -> tuple[int, int]:
    """Elements and bytes of a block."""
    try:
        sizes: Any = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(ggml_type)]
    except (ValueError, KeyError) as error:
        raise ModelError(f"GGUF tensors of type {ggml_type} are not known to the installed gguf package.") from error
    return int(sizes[0]), int(sizes[1])


def _apart(rows: npt.NDArray[np.uint8], heads: int) -> npt.NDArray[np.uint8]:
    """Rows of interleaved pairs (0, h, 1, h + 1, ...) as a head's first half, then its second."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
