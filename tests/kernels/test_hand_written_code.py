"""The instructions that kernels write by hand, which Triton's interpreter leaves out, mean what the arithmetic does."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable

import pytest
import torch
from tests.kernels.ptx import run

pytest.importorskip("triton")

from firsttoken.kernels.gpu import e4m3, fixed_point, packed, quant_pairs

TIMES = 50


def _bytes(word: int) -> list[int]:
    return [word >> 8 * i & 255 for i in range(4)]


def _e4m3(byte: int) -> float:
    return float(torch.tensor([byte], dtype=torch.uint8).view(torch.float8_e4m3fn).float()[0])


def _word_of_e4m3() -> int:
    codes = [random.choice([c for c in range(256) if c & 0x7F != 0x7F]) for _ in range(4)]
    return sum(code << 8 * i for i, code in enumerate(codes))


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _low(word: int) -> list[int]:
    return [byte & 15 for byte in _bytes(word)]


def _high(word: int) -> list[int]:
    return [byte >> 4 for byte in _bytes(word)]


def _all(parts: Callable[[int], list[int]], words: list[int]) -> list[int]:
    return [part for word in words for part in parts(word)]


def _bf16(words: list[int]) -> list[float]:
    return [_float((word >> shift & 0xFFFF) << 16) for word in words for shift in (0, 16)]


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    random.seed(seed)
    print(f"seed {seed}")


def test_bytes_become_bfloat16_for_the_matrix_units() -> None:
    for _ in range(TIMES):
        word, codes = random.getrandbits(32), _word_of_e4m3()
        assert _bf16(run(packed._LOW4, [word], 2)) == [128 + v for v in _low(word)]
        assert _bf16(run(packed._HIGH4, [word], 2)) == [128 + v for v in _high(word)]
        assert _bf16(run(packed._INT8, [word], 2)) == _bytes(word)
        assert _bf16(run(packed._FP8, [codes], 2)) == [_e4m3(c) * 2.0**-120 for c in _bytes(codes)]


def test_bytes_become_weights_with_their_scales() -> None:
    def words_of(numbers: list[float]) -> list[int]:
        bits = torch.tensor(numbers, dtype=torch.bfloat16).view(torch.int16).tolist()
        return [(low & 0xFFFF) | (high & 0xFFFF) << 16 for low, high in zip(bits[::2], bits[1::2], strict=True)]

    def rounded(numbers: list[float]) -> list[float]:
        return torch.tensor(numbers, dtype=torch.float64).bfloat16().tolist()

    for form, high, parts, middle, most in (
        (1, False, _low, 8, 15),
        (1, True, _high, 8, 15),
        (2, False, _bytes, 128, 255),
    ):
        above = 128 if form == 1 else 0  # what bytes of four bits are made too large
        plain, pointed, offset = packed._SCALED[form, high]
        for _ in range(TIMES):
            word = random.getrandbits(32)
            values = parts(word)
            scales, offsets = (rounded([random.uniform(-2, 2) for _ in range(4)]) for _ in range(2))
            points = [random.randint(0, most) for _ in range(4)]
            scaled = [(v - middle) * s for v, s in zip(values, scales, strict=True)]
            assert _bf16(run(plain, [word, *words_of(scales)], 2)) == rounded(scaled)
            given = words_of([-(point + above) for point in points])
            scaled = [(v - z) * s for v, z, s in zip(values, points, scales, strict=True)]
            assert _bf16(run(pointed, [word, *words_of(scales), *given], 2)) == rounded(scaled)
            added = [v * s + z for v, z, s in zip(values, offsets, scales, strict=True)]
            assert _bf16(run(offset, [word, *words_of(scales), *words_of(offsets)], 2)) == rounded(added)


def test_bytes_become_float32_for_one_row() -> None:
    for _ in range(TIMES):
        word, codes = random.getrandbits(32), _word_of_e4m3()
        values = [_e4m3(code) for code in _bytes(codes)]
        assert [_float(v) for v in run(packed._LOW4_WIDE, [word], 4)] == [128 + v for v in _low(word)]
        assert [_float(v) for v in run(packed._HIGH4_WIDE, [word], 4)] == [128 + v for v in _high(word)]
        assert [_float(v) for v in run(packed._INT8_WIDE, [word], 4)] == [256 + v for v in _bytes(word)]
        assert [_float(v) for v in run(packed._FP8_WIDE, [codes], 4)] == [v / 256 for v in values]
        assert [_float(v) for v in run(packed._FP8_NATIVE, [codes], 4)] == values


def test_four_bits_in_a_byte_are_an_e4m3_number() -> None:
    for _ in range(TIMES):
        word = random.getrandbits(32)
        assert [512 * _e4m3(code) for code in _bytes(run(quant_pairs._LOW.value, [word], 1)[0])] == _low(word)
        assert [512 * _e4m3(code) for code in _bytes(run(quant_pairs._HIGH.value, [word], 1)[0])] == _high(word)


def _half(bits: int) -> float:
    return float(torch.tensor([bits], dtype=torch.int32).to(torch.uint16).view(torch.float16)[0])


def _halves(words: list[int]) -> list[float]:
    return [_half(word >> shift & 0xFFFF) for word in words for shift in (0, 16)]


def test_e4m3_of_the_cache_becomes_float16() -> None:
    for _ in range(TIMES):
        word = _word_of_e4m3()
        values = [_e4m3(code) for code in _bytes(word)]
        assert _halves(run(e4m3._FOUR, [word], 2)) == [value / 256 for value in values]
        assert _halves(run(e4m3._EVEN, [word], 1)) == [values[0] / 256, values[2] / 256]
        assert _halves(run(e4m3._ODD, [word], 1)) == [values[1] / 256, values[3] / 256]
        assert _halves(run(e4m3._EVEN_NATIVE, [word], 1)) == [values[0], values[2]]
        assert _halves(run(e4m3._ODD_NATIVE, [word], 1)) == [values[1], values[3]]


def _activations(count: int) -> tuple[list[int], list[int], list[int]]:
    """Whole numbers of 15 bits, and the words of their high and low bytes as the kernel makes them, four a word."""
    numbers = [random.randint(-(2**14), 2**14) for _ in range(count)]
    rounded = [_bits(number + 12582912.0) for number in numbers]
    words = [run(fixed_point._BYTES, rounded[i : i + 4], 2) for i in range(0, count, 4)]
    return numbers, [high for high, _ in words], [low for _, low in words]


def _signed(word: int) -> int:
    return word - 2**32 if word >> 31 else word


def test_integers_times_activations_in_two_bytes_are_exact() -> None:
    for _ in range(TIMES):
        words = [random.getrandbits(32) for _ in range(4)]
        x, high, low = _activations(32)
        product = sum(u * v for u, v in zip(_all(_bytes, words), x[:16], strict=True))
        assert _signed(run(fixed_point._INT8, [*words, *high[:4], *low[:4]], 1)[0]) == product
        values = [*_all(_low, words), *_all(_high, words)]
        product = sum(u * v for u, v in zip(values, x, strict=True))
        assert _signed(run(fixed_point._INT4, [*words, *high, *low], 1)[0]) == 16 * product


@pytest.mark.parametrize(("code", "unit"), [(fixed_point._FP8_NATIVE, 1.0), (fixed_point._FP8_BITS, 256.0)])
def test_e4m3_times_activations_is_as_exact_as_float16(code: str, unit: float) -> None:
    for _ in range(TIMES):
        words = [_word_of_e4m3() for _ in range(4)]
        x = [random.uniform(-16, 16) for _ in range(16)]
        pairs = [run(fixed_point._PAIR, [_bits(a), _bits(b)], 1)[0] for a, b in zip(x[::2], x[1::2], strict=True)]
        found = _float(run(code, [*words, *pairs[::2], *pairs[1::2]], 1)[0]) * unit
        products = [_e4m3(code) * v for code, v in zip(_all(_bytes, words), x, strict=True)]
        assert found == pytest.approx(sum(products), abs=2.0**-9 * sum(map(abs, products)))
