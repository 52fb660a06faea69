"""Random weights of a config's shapes, for benchmarks: speed is that of the real model, answers are noise."""

from __future__ import annotations

import math
import zlib

import torch

from firsttoken.model.config import ModelConfig
from firsttoken.model.tensor_names import expected_tensors
from firsttoken.model.weights import RawWeight


class DummyWeights:
    """A WeightSource that draws each tensor from its name and the seed, straight on the device.

    Linears have a spread of 1/sqrt(in), norms lie around 1: activations and logits stay near unit size.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        self._shapes = expected_tensors(config)
        self._dtype, self._device, self._seed = dtype, device, seed

    def take(self, name: str) -> RawWeight:
        shape = self._shapes[name]
        mean, spread = (0.0, 1 / math.sqrt(shape[-1])) if len(shape) == 2 else (0.0, 0.02)
        if len(shape) == 1 and name.endswith(".weight"):  # a norm
            mean, spread = 1.0, 0.1
        generator = torch.Generator(self._device).manual_seed(zlib.crc32(name.encode()) ^ self._seed)
        tensor = torch.empty(shape, dtype=self._dtype, device=self._device).normal_(mean, spread, generator=generator)
        return RawWeight(name, shape, tensor=tensor)

    def kv_scales(self) -> None:
        """None: what random weights give is measured."""
