"""Weights of a model folder: safetensors, in one file or in shards. Pickles are never read."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from firsttoken.errors import ModelError
from firsttoken.model.config import ModelConfig
from firsttoken.model.quantization import Quantization
from firsttoken.model.stored_kv_scales import stored_kv_scales
from firsttoken.model.stored_quant import StoredQuant, View, check_order, check_stored, is_unused, module_tensors
from firsttoken.model.tensor_names import HEAD, expected_tensors, named
from firsttoken.model.weights import RawWeight

_INDEX = "model.safetensors.index.json"
_FLOATS = ("F32", "BF16", "F16")


class Checkpoint:
    """A WeightSource over mapped safetensors files. Opening it checks every name, shape and type against the config.

    Raises ModelError, in one sentence that names the first offenders.
    """

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._lock = threading.Lock()
        self._file_of: dict[str, Any] = {}
        self._stored: dict[str, tuple[str, ...]] = {}  # the tensors of each quantised module
        self._config = config
        for path in _weight_files(folder):
            try:
                file: Any = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is cut short or damaged; fetch it again ({error}).") from error
            self._file_of |= dict.fromkeys(file.keys(), file)
        self._check(folder, config)

    def take(self, name: str) -> RawWeight:
        """The tensor as a view of the mapped file: its bytes are read when it is copied or used."""
        module = name.removesuffix(".weight")
        if module not in self._stored:
            tensor = self._tensor(name)
            return RawWeight(name, tuple(tensor.shape), tensor=tensor)
        assert self._config.quantization is not None
        tensors = {part: self._tensor(f"{module}.{part}") for part in self._stored[module]}
        shape = self._shapes[name]
        return RawWeight(name, shape, stored=StoredQuant(self._config.quantization, shape, tensors))

    def kv_scales(self) -> list[Tensor] | None:
        """As the protocol says. Raises ModelError where only some are there, or one cannot be a scale."""
        return stored_kv_scales(self._file_of, self._tensor, self._config)

    def _tensor(self, name: str) -> Tensor:
        with self._lock:
            tensor: Tensor = self._file_of[name].get_tensor(name)
        return tensor

    def _check(self, folder: Path, config: ModelConfig) -> None:
        expected = self._shapes = expected_tensors(config)
        if config.quantization is not None:
            self._find_stored(config.quantization)
        quantised = {f"{module}.weight" for module in self._stored}
        of_those = {f"{module}.{part}" for module, parts in self._stored.items() for part in parts}
        missing = [name for name in expected if name not in self._file_of and name not in quantised]
        if missing:
            raise ModelError(f"{folder} lacks tensors that {config.architecture} needs: {named(missing)}.")
        ignored = {HEAD} if config.tie_word_embeddings else set()
        surplus = [
            name
            for name in self._file_of
            if name not in expected
            and name not in ignored
            and name not in of_those
            and not _is_harmless(name, config)
            and not self._adds_nothing(name)
        ]
        if surplus:
            raise ModelError(f"{folder} has tensors that {config.architecture} has no place for: {named(surplus)}.")
        for name, shape in expected.items():
            if name in quantised:
                continue
            view = self._file_of[name].get_slice(name)
            if tuple(view.get_shape()) != shape:
                found = list(view.get_shape())
                raise ModelError(f"{folder}: {name} has the shape {found}, but config.json asks for {list(shape)}.")
            if view.get_dtype() not in _FLOATS:
                raise ModelError(f"{folder}: {name} is {view.get_dtype()}; only {', '.join(_FLOATS)} are supported.")

    def _adds_nothing(self, name: str) -> bool:
        """Whether it is a bias of zeros: some GPTQ checkpoints have one for each module, whatever the model."""
        module, _, part = name.rpartition(".")
        return part == "bias" and module in self._stored and not bool(self._tensor(name).any())

    def _find_stored(self, quantization: Quantization) -> None:
        """Which modules are quantised, by the tensors that are there; each is checked."""
        views = {name: self._view(name) for name in self._file_of}
        for name, shape in self._shapes.items():
            module = name.removesuffix(".weight")
            found = None if len(shape) != 2 else module_tensors(views, module, quantization)
            if found is None:
                continue
            check_stored(module, quantization, shape, found)
            if "g_idx" in found:
                check_order(module, quantization, self._tensor(f"{module}.g_idx"))
            self._stored[module] = tuple(found)

    def _view(self, name: str) -> View:
        view = self._file_of[name].get_slice(name)
        return tuple(view.get_shape()), str(view.get_dtype())


def _is_harmless(name: str, config: ModelConfig) -> bool:
    quantised = config.quantization is not None or config.kv_scheme is not None
    return name.endswith("rotary_emb.inv_freq") or (quantised and is_unused(name))


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError(f"{index} is not an index of safetensors files that can be read.") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(f"{folder} lacks files that its index names: {named(missing)}; fetch the model again.")
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise ModelError(f"{folder} holds only pickled weights, which are never read; use a safetensors version.")
    raise ModelError(f"{folder} has no safetensors files; fetch the model again, or name the folder that has them.")
