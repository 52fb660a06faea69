"""Names and numbers of the quantised forms. No torch: the processes that compile kernels need nothing else of them."""

from __future__ import annotations

from typing import Literal

QuantForm = Literal["fp8", "int8", "int4"]
QUANT_FORMS: dict[str, QuantForm] = {"fp8": "fp8", "int8": "int8", "int4": "int4"}

HEAD_FORMS: dict[QuantForm, QuantForm] = {"int8": "int8", "int4": "int8"}
"""What the head is rounded to beside layers of a form. In E4M3 it would cost a hundred times what int8 costs there, and
FP8's layers are for many streams, whose logits the library multiplies faster as they are."""

BITS: dict[QuantForm, int] = {"fp8": 8, "int8": 8, "int4": 4}
MIDDLE: dict[QuantForm, int] = {"fp8": 0, "int8": 128, "int4": 8}  # the integer that stands for zero without points
HALF_RUN = 16  # bytes of a run, and inputs of its low halves
