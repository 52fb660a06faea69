"""A GGUF file whose layers' matrices are rounded to another form, to hold one form's quality against another's.

    python benchmarks/rounded_gguf.py MODEL.gguf rounded.gguf --form Q8_0

All else is copied as it is, the head too. GGUF's own forms are stored in their blocks. FP8 in blocks of 128 x 128, for
which GGUF has no type, becomes float32: E4M3 times its block's scale, which `--dtype float32` multiplies exactly.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import Keys
from gguf.quants import dequantize, quantize

FP8_BLOCKS = "FP8_BLOCKS"
FORMS = ("Q4_0", "Q4_1", "Q8_0", FP8_BLOCKS)
BLOCK = 128
E4M3_MAX = 448.0
Matrix = npt.NDArray[np.float32]
_WRITERS_OWN = ("GGUF.", Keys.General.ARCHITECTURE)  # fields that the writer adds by itself


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=FORMS, default="Q8_0")
    given = parser.parse_args()
    write(given.source, given.out, given.form)
    print(f"{given.out}: {given.out.stat().st_size / 1e9:.2f} GB")
    return 0


def write(source: Path, out: Path, form: str) -> None:
    """Writes the file tensor by tensor, each rounded once it is its turn."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, str(reader.fields[Keys.General.ARCHITECTURE].contents()))
    for field in reader.fields.values():
        if not field.name.startswith(_WRITERS_OWN):
            copy_field(writer, field)
    for tensor in reader.tensors:
        kind = stored_type(tensor, form)
        shape = gguf.quant_shape_to_byte_shape(tuple(int(size) for size in reversed(tensor.shape)), kind)
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.uint8), int(np.prod(shape)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        if is_rounded(tensor):
            weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            stored = fp8_in_blocks(weight) if form == FP8_BLOCKS else quantize(weight, stored_type(tensor, form))
        else:
            stored = np.ascontiguousarray(tensor.data)
        writer.write_tensor_data(stored.view(np.uint8))
    writer.close()


def is_rounded(tensor: Any) -> bool:
    """A layer's matrices are; norms, biases, the embedding and the head are not."""
    return tensor.name.startswith("blk.") and len(tensor.shape) == 2


def stored_type(tensor: Any, form: str) -> gguf.GGMLQuantizationType:
    if not is_rounded(tensor):
        return gguf.GGMLQuantizationType(tensor.tensor_type)
    return gguf.GGMLQuantizationType["F32" if form == FP8_BLOCKS else form]


def copy_field(writer: gguf.GGUFWriter, field: Any) -> None:
    kind, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
    writer.add_key_value(field.name, field.contents(), kind, sub_type=sub)


def fp8_in_blocks(weight: Matrix) -> Matrix:
    """[n, k] -> the same, rounded as Qwen's FP8 checkpoints are: each block's largest number becomes E4M3's."""
    n, k = weight.shape
    rows, columns = -(-n // BLOCK), -(-k // BLOCK)
    padded = torch.zeros(rows * BLOCK, columns * BLOCK)
    padded[:n, :k] = torch.from_numpy(weight)
    blocks = padded.view(rows, BLOCK, columns, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-12) / E4M3_MAX  # [rows, 1, columns, 1]
    rounded = (blocks / scale).to(torch.float8_e4m3fn).float() * scale
    return np.ascontiguousarray(rounded.view_as(padded)[:n, :k].numpy())


if __name__ == "__main__":
    raise SystemExit(main())
