"""A GGUF file of a model's shapes with random weights, so that GGUF's kept forms can be timed without the real file.

    python benchmarks/made_up_gguf.py CONFIG_FOLDER made-up.gguf --form Q4_0

CONFIG_FOLDER needs a config.json of Qwen3, Qwen2 or Llama and a tokenizer.json of byte-level BPE. The layers' matrices
are in the form; the embedding is too in Q8_0, and in bf16 beside four bits, which is what published files' Q6_K takes
on a GPU. BF16 is what `rounded_gguf.py` rounds to the other forms.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from firsttoken.model.config import ModelConfig, load_config
from firsttoken.model.gguf import gguf_name
from firsttoken.model.gguf_config import ARCHITECTURES
from firsttoken.model.tensor_names import EMBEDDING, HEAD, expected_tensors
from firsttoken.tokenizer_files import load_folder

FORMS = ("Q4_0", "Q4_1", "Q8_0")
SPREAD = 0.02  # a weight's standard deviation
F32, BF16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.BF16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=(*FORMS, "BF16"), default="Q4_0")
    given = parser.parse_args()
    write(given.folder, given.out, given.form)
    print(f"{given.out}: {given.out.stat().st_size / 1e9:.2f} GB")
    return 0


def write(folder: Path, out: Path, form: str, seed: int = 0) -> None:
    """Writes the file tensor by tensor; its own size is all the disk it needs."""
    config = load_config(folder)
    kind = next(name for name, architecture in ARCHITECTURES.items() if architecture == config.architecture)
    writer = gguf.GGUFWriter(out, kind)
    describe(writer, config)
    add_tokenizer(writer, folder, config.vocab_size)
    shapes = expected_tensors(config)
    rng = np.random.default_rng(seed)
    stored = {gguf_name(name): (shape, type_of(name, shape, form)) for name, shape in shapes.items()}
    write_tensors(writer, stored, (random_bytes(rng, shape, ggml_type) for shape, ggml_type in stored.values()))


def write_tensors(
    writer: gguf.GGUFWriter,
    stored: Mapping[str, tuple[tuple[int, ...], gguf.GGMLQuantizationType]],
    data: Iterable[npt.NDArray[np.uint8]],
) -> None:
    """Writes the header, then the bytes of one tensor after the other, and closes. `stored`: shapes and types."""
    for name, (shape, ggml_type) in stored.items():
        rows = gguf.quant_shape_to_byte_shape(shape, ggml_type)
        writer.add_tensor_info(name, rows, np.dtype(np.uint8), math.prod(rows), raw_dtype=ggml_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for each in data:
        writer.write_tensor_data(each)
    writer.close()


def describe(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path, vocab_size: int) -> None:
    """The folder's own vocabulary, padded to the embedding's rows as converters pad it."""
    files = load_folder(folder)
    added = files.backend.get_added_tokens_decoder()
    merges: list[Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    size = files.backend.get_vocab_size(with_added_tokens=True)
    control, unused, normal = (int(gguf.TokenType[name]) for name in ("CONTROL", "UNUSED", "NORMAL"))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    tokens = [files.backend.id_to_token(token) or f"[PAD{token}]" for token in range(size)]
    writer.add_token_list(tokens + [f"[PAD{token}]" for token in range(size, vocab_size)])
    types = [control if token in added else normal for token in range(size)]
    writer.add_token_types(types + [unused] * (vocab_size - size))
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    if files.eos_token_ids:
        writer.add_eos_token_id(files.eos_token_ids[0])


def type_of(name: str, shape: tuple[int, ...], form: str) -> gguf.GGMLQuantizationType:
    if len(shape) == 1:
        return F32
    return BF16 if name in (EMBEDDING, HEAD) and form != "Q8_0" else gguf.GGMLQuantizationType[form]


def random_bytes(
    rng: np.random.Generator, shape: tuple[int, ...], ggml_type: gguf.GGMLQuantizationType
) -> npt.NDArray[np.uint8]:
    """[..., bytes a row]: random bits of a weight in every block, with scales that give `SPREAD`; norms are ones."""
    rows = gguf.quant_shape_to_byte_shape(shape, ggml_type)
    if ggml_type == F32:
        return np.ones(shape, dtype=np.float32).view(np.uint8)
    if ggml_type == BF16:
        spread = rng.standard_normal(size=shape, dtype=np.float32) * np.float32(SPREAD)
        return (spread.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    block_bytes = gguf.GGML_QUANT_SIZES[ggml_type][1]
    blocks = np.frombuffer(rng.bytes(math.prod(rows)), dtype=np.uint8).reshape(-1, block_bytes).copy()
    steps = 256 if ggml_type == gguf.GGMLQuantizationType.Q8_0 else 16
    scale = SPREAD * math.sqrt(12.0 / (steps * steps - 1))  # of numbers that are all equally likely
    numbers = [scale, -scale * (steps - 1) / 2] if ggml_type == gguf.GGMLQuantizationType.Q4_1 else [scale]
    blocks[:, : 2 * len(numbers)] = np.array(numbers, dtype=np.float16).view(np.uint8)
    return blocks.reshape(rows)


if __name__ == "__main__":
    raise SystemExit(main())
