"""Rotation tables for each kind of RoPE scaling, the same numbers as transformers computes.

linear: position interpolation (arXiv:2306.15595). dynamic: NTK-aware base that grows with the sequence. yarn:
arXiv:2309.00071. llama3: Llama 3.1's frequency ramp. GGUF stores llama3's result as one divisor a frequency.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from firsttoken.kernels.plan import Rope
from firsttoken.model.config import ModelConfig
from firsttoken.model.rope_scaling import FREQUENCY_FACTORS


class RopeTable:
    """cos and sin for every position below `max_len`, or computed a step for dynamic scaling.

    Dynamic scaling rotates a token by its position and by the length its sequence had when the token was first run.
    As in transformers' `generate`, that is the whole prompt for each prompt token and position + 1 for a generated
    one: `max(num_prompt_tokens, position + 1)`. It depends on neither chunks, nor neighbours, nor preemption.
    """

    def __init__(self, config: ModelConfig, max_len: int, device: torch.device | str = "cpu") -> None:
        self._config = config
        self._scaling = config.rope_scaling
        self.is_dynamic: bool = self._scaling["rope_type"] == "dynamic"
        self._inv_freq, self._factor = inverse_frequencies(config)
        self._inv_freq = self._inv_freq.to(device)
        length = min(max_len, config.max_position_embeddings) if self.is_dynamic else max_len
        self.rope: Rope = self._rotations(torch.arange(length, device=device), self._inv_freq)

    @property
    def shareable_tokens(self) -> int | None:
        """Leading tokens whose KV depends on nothing but the tokens before; None means all.

        Past it (dynamic scaling), keys depend on the prompt's length too: a sequence with a longer prompt must share
        no prefix block at all, any other sequence only blocks that end at or before this.
        """
        return self._config.max_position_embeddings if self.is_dynamic else None

    def rows(self, positions: Tensor, lengths: Tensor) -> tuple[Rope, Tensor]:
        """The table and its rows [tokens] for tokens at `positions` [tokens] int64.

        `lengths` [tokens] int64 is max(num_prompt_tokens, position + 1), read only for dynamic scaling.
        """
        if not self.is_dynamic:
            return self.rope, positions
        inv_freq = self._dynamic_frequencies(lengths)  # [tokens, head_dim / 2]
        return self._rotations(positions, inv_freq), torch.arange(positions.shape[0], device=positions.device)

    def _rotations(self, positions: Tensor, inv_freq: Tensor) -> Rope:
        angles = positions.to(torch.float32)[:, None] * inv_freq
        return Rope(angles.cos() * self._factor, angles.sin() * self._factor)

    def _dynamic_frequencies(self, lengths: Tensor) -> Tensor:
        dim, original = self._config.head_dim, self._config.max_position_embeddings
        factor = self._scaling["factor"]
        stretch = factor * lengths.clamp(min=original) / original - (factor - 1)  # [tokens]
        base = self._config.rope_theta * stretch.to(torch.float32) ** (dim / (dim - 2))
        scaled = 1.0 / base[:, None] ** _exponents(dim, lengths.device)
        return torch.where(lengths[:, None] > original, scaled, self._inv_freq)


def inverse_frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    """Radians a position for each pair of a head's halves, float32 [head_dim / 2], and the factor on cos and sin."""
    dim, theta, scaling = config.head_dim, config.rope_theta, config.rope_scaling
    kind = scaling["rope_type"]
    plain = 1.0 / (theta ** _exponents(dim, "cpu"))
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "yarn":
        return _yarn(dim, theta, scaling)
    if kind == "llama3":
        return _llama3(plain, scaling), 1.0
    if kind == FREQUENCY_FACTORS:
        return plain / torch.tensor(scaling["factors"], dtype=torch.float32), 1.0
    return plain, 1.0


def _exponents(dim: int, device: torch.device | str) -> Tensor:
    return torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim


def _yarn(dim: int, theta: float, scaling: dict[str, Any]) -> tuple[Tensor, float]:
    """Fast frequencies stay, slow ones are interpolated by `factor`, those between are blended."""
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]

    def pair_of(rotations: float) -> float:
        """Which pair turns this many times over the original context."""
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_of(scaling.get("beta_fast") or 32), pair_of(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    blend = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    steps = theta ** _exponents(dim, "cpu")
    kept = 1 - blend
    return (1.0 / (factor * steps)) * (1 - kept) + (1.0 / steps) * kept, _yarn_factor(factor, scaling)


def _yarn_factor(factor: float, scaling: dict[str, Any]) -> float:
    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    stated = scaling.get("attention_factor")
    if stated is not None:
        return float(stated)
    top, bottom = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return mscale(top) / mscale(bottom) if top and bottom else mscale(1.0)


def _llama3(plain: Tensor, scaling: dict[str, Any]) -> Tensor:
    """Wavelengths beyond the original context over `low` are stretched, those under it over `high` kept."""
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelength = 2 * math.pi / plain
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * plain / factor + smooth * plain
    stretched = torch.where(wavelength > original / low, plain / factor, plain)
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return torch.where(between, blended, stretched)
