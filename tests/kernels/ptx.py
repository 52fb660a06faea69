"""Runs the few instructions of PTX that kernels write by hand, a thread at a time, so that no card is needed.

Registers hold 32 bits as an int, or 16. Semantics are those of the PTX ISA; rounding is torch's, to nearest even.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import torch

_MASK = 0xFFFFFFFF


def run(code: str, inputs: Sequence[int], outputs: int) -> list[int]:
    """The output registers ($0 and on) after `code`, whose operands after them are `inputs`."""
    registers: dict[str, int] = {f"${outputs + i}": value & _MASK for i, value in enumerate(inputs)}
    for line in re.split(r"[;\n]", code.strip().removeprefix("{").removesuffix("}")):
        words = line.split(None, 1)
        if not words or words[0] == ".reg" or words[0].startswith(".reg"):
            continue
        _execute(words[0], _operands(words[1]), registers)
    return [registers[f"${i}"] for i in range(outputs)]


def _operands(text: str) -> list[str]:
    return [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{}]+", text) if part.strip()]


def _execute(name: str, operands: list[str], registers: dict[str, int]) -> None:
    target, *sources = operands

    def value(operand: str) -> int:
        return registers[operand] if operand in registers else int(operand, 0) & _MASK

    if name == "mov.b32" and target.startswith("{"):
        low, high = (part.strip() for part in target.strip("{}").split(","))
        registers[low], registers[high] = value(sources[0]) & 0xFFFF, value(sources[0]) >> 16
        return
    registers[target] = _MEANINGS[name](*(value(source) for source in sources)) & _MASK


def _bytes(word: int) -> list[int]:
    return [word >> 8 * i & 255 for i in range(4)]


def _word(parts: Sequence[int]) -> int:
    return sum((part & 255) << 8 * i for i, part in enumerate(parts))


def _prmt(a: int, b: int, selector: int) -> int:
    pool = _bytes(a) + _bytes(b)
    picked = [selector >> 4 * i & 15 for i in range(4)]
    return _word([pool[p & 7] if p < 8 else 255 * (pool[p & 7] >> 7) for p in picked])


def _lop3(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _dp4a(a: int, b: int, c: int, *, signed: bool) -> int:
    right = [_signed(byte) if signed else byte for byte in _bytes(b)]
    return c + sum(x * y for x, y in zip(_bytes(a), right, strict=True))


def _halves(word: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([word & 0xFFFF, word >> 16], dtype=torch.int32).to(torch.uint16).view(dtype).double()


def _packed(values: torch.Tensor, dtype: torch.dtype) -> int:
    low, high = values.to(dtype).view(torch.uint16).tolist()
    return int(low) | int(high) << 16


def _pairs(dtype: torch.dtype, meaning: Callable[..., torch.Tensor]) -> Callable[..., int]:
    return lambda *words: _packed(meaning(*(_halves(word, dtype) for word in words)), dtype)


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _from_e4m3(pair: int) -> int:
    codes = torch.tensor([pair & 255, pair >> 8 & 255], dtype=torch.uint8).view(torch.float8_e4m3fn)
    return _packed(codes.double(), torch.float16)


def _fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a * b + c  # in float64: exact for 16 bits


_MEANINGS: dict[str, Callable[..., int]] = {
    "mov.b32": lambda a: a,
    "and.b32": lambda a, b: a & b,
    "shr.u32": lambda a, b: a >> b,
    "shl.b32": lambda a, b: a << b,
    "prmt.b32": _prmt,
    "lop3.b32": _lop3,
    "mad.lo.s32": lambda a, b, c: a * b + c,
    "dp4a.u32.s32": lambda a, b, c: _dp4a(a, b, c, signed=True),
    "dp4a.u32.u32": lambda a, b, c: _dp4a(a, b, c, signed=False),
    "fma.rn.bf16x2": _pairs(torch.bfloat16, _fma),
    "fma.rn.f16x2": _pairs(torch.float16, _fma),
    "mul.rn.f16x2": _pairs(torch.float16, lambda a, b: a * b),
    "add.rn.f16x2": _pairs(torch.float16, lambda a, b: a + b),
    "cvt.f32.f16": lambda a: _bits(float(_halves(a, torch.float16)[0])),
    "cvt.rn.f16x2.f32": lambda high, low: _packed(torch.tensor([_float(low), _float(high)]), torch.float16),
    "cvt.rn.f16x2.e4m3x2": _from_e4m3,
    "add.f32": lambda a, b: _bits(float(torch.tensor(_float(a)) + torch.tensor(_float(b)))),
}
