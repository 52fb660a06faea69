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
from made_up_gguf import write_tensors

from firsttoken.kernels.quant_round import round_weight

FP8_BLOCKS = "FP8_BLOCKS"
FORMS = ("Q4_0", "Q4_1", "Q8_0", FP8_BLOCKS)
BLOCK = 128
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
    stored = {
        tensor.name: (tuple(map(int, reversed(tensor.shape))), stored_type(tensor, form)) for tensor in reader.tensors
    }
    write_tensors(writer, stored, (stored_bytes(tensor, form) for tensor in reader.tensors))


def is_rounded(tensor: Any) -> bool:
    """A layer's matrices are; norms, biases, the embedding and the head are not."""
    return tensor.name.startswith("blk.") and len(tensor.shape) == 2


def stored_type(tensor: Any, form: str) -> gguf.GGMLQuantizationType:
    if not is_rounded(tensor):
        return gguf.GGMLQuantizationType(tensor.tensor_type)
    return gguf.GGMLQuantizationType["F32" if form == FP8_BLOCKS else form]


def stored_bytes(tensor: Any, form: str) -> npt.NDArray[np.uint8]:
    if not is_rounded(tensor):
        return np.ascontiguousarray(tensor.data).view(np.uint8)
    weight = dequantize(tensor.data, tensor.tensor_type)
    if form != FP8_BLOCKS:
        return quantize(weight, stored_type(tensor, form)).view(np.uint8)
    rounded = round_weight(torch.from_numpy(weight), "fp8", group=BLOCK, rows=BLOCK)
    return rounded.dequantize().numpy().view(np.uint8)


def copy_field(writer: gguf.GGUFWriter, field: Any) -> None:
    kind, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
    writer.add_key_value(field.name, field.contents(), kind, sub_type=sub)


if __name__ == "__main__":
    raise SystemExit(main())
