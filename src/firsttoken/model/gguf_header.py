"""The header of a GGUF file (version 2 or 3): metadata and where the tensors lie.

Standard library only, and quick: arrays (a tokeniser's 300,000 strings) are skipped until someone asks for them. The
format is described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from firsttoken.errors import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_ITEM_OF_ARRAY = struct.Struct("<IQ")


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is row-major ([out, in]), the other way round than in the file."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int  # bytes from the start of the file


@dataclass(frozen=True, slots=True)
class _Array:
    """An array that was skipped: its items' type, their number and where they start."""

    kind: int
    count: int
    offset: int


class GGUFHeader:
    """Metadata and tensor table of one file, mapped. A context manager; closing ends the reading of arrays.

    Raises ModelError where the file is not GGUF, is cut short, or is one part of several.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelError(
                f"{path} cannot be read ({error.strerror}); check the path and who may read it."
            ) from error
        except ValueError as error:  # nothing to map
            raise ModelError(f"{path} is empty; fetch the file again.") from error
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GGUFTensor] = {}
        try:
            self._parse()
        except (struct.error, IndexError, UnicodeDecodeError, OverflowError) as error:
            raise ModelError(f"{path} is cut short or damaged: its GGUF header cannot be read.") from error
        if self.metadata.get("split.count", 0) > 1:
            raise ModelError(f"{path} is one part of a split GGUF; join the parts first (llama-gguf-split --merge).")

    def __enter__(self) -> GGUFHeader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()

    def get(self, key: str, default: Any = None) -> Any:
        """A scalar, or an array as a list."""
        value = self.metadata.get(key, default)
        return list(self._items(value)) if isinstance(value, _Array) else value

    def length(self, key: str) -> int:
        """Items in an array, without reading them; 0 where there is none."""
        value = self.metadata.get(key)
        return value.count if isinstance(value, _Array) else 0

    def floats(self, name: str) -> list[float]:
        """A small float32 tensor's values."""
        tensor = self.tensors[name]
        count = 1
        for size in tensor.shape:
            count *= size
        return list(struct.unpack_from(f"<{count}f", self._data, tensor.offset))

    def _parse(self) -> None:
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{self.path} is not a GGUF file.")
        (version,) = _U32.unpack_from(self._data, 4)
        if version not in (2, 3):
            raise ModelError(f"{self.path} is GGUF version {version}; versions 2 and 3 are supported.")
        num_tensors, num_fields = struct.unpack_from("<QQ", self._data, 8)
        position = 24
        for _ in range(num_fields):
            key, position = self._string(position)
            (kind,) = _U32.unpack_from(self._data, position)
            self.metadata[key], position = self._value(kind, position + 4)
        infos = []
        for _ in range(num_tensors):
            name, position = self._string(position)
            (dims,) = _U32.unpack_from(self._data, position)
            *shape, ggml_type, offset = struct.unpack_from(f"<{dims}QIQ", self._data, position + 4)
            position += 4 + 8 * dims + 12
            infos.append((name, tuple(reversed(shape)), ggml_type, offset))
        alignment = self.metadata.get("general.alignment", 32)
        start = -(-position // alignment) * alignment
        self.tensors = {name: GGUFTensor(name, shape, kind, start + offset) for name, shape, kind, offset in infos}

    def _string(self, position: int) -> tuple[str, int]:
        (size,) = _U64.unpack_from(self._data, position)
        start, end = position + 8, position + 8 + size
        if end > len(self._data):
            raise IndexError(end)
        return self._data[start:end].decode("utf-8"), end

    def _value(self, kind: int, position: int) -> tuple[Any, int]:
        if kind == _STRING:
            return self._string(position)
        if kind == _ARRAY:
            item, count = _ITEM_OF_ARRAY.unpack_from(self._data, position)
            array = _Array(item, count, position + 12)
            return array, self._skip(array)
        if kind not in _SCALARS:
            raise IndexError(kind)
        layout = "<" + _SCALARS[kind]
        return struct.unpack_from(layout, self._data, position)[0], position + struct.calcsize(layout)

    def _skip(self, array: _Array) -> int:
        """The position behind an array."""
        if array.kind != _STRING:
            if array.kind not in _SCALARS:
                raise IndexError(array.kind)
            return array.offset + array.count * struct.calcsize("<" + _SCALARS[array.kind])
        position, data, size_at = array.offset, self._data, _U64.unpack_from
        for _ in range(array.count):
            position += 8 + size_at(data, position)[0]
        return position

    def _items(self, array: _Array) -> Iterator[Any]:
        if array.kind != _STRING:
            return iter(struct.unpack_from(f"<{array.count}{_SCALARS[array.kind]}", self._data, array.offset))
        return self._strings(array)

    def _strings(self, array: _Array) -> Iterator[str]:
        position = array.offset
        for _ in range(array.count):
            text, position = self._string(position)
            yield text


def gguf_read_bytes(path: Path) -> int:
    """Bytes that a decode step reads of a file: every tensor, without an embedding that is only looked up.

    Raises ModelError.
    """
    with GGUFHeader(path) as header:
        tensors = sorted(header.tensors.values(), key=lambda tensor: tensor.offset)
    ends = [tensor.offset for tensor in tensors[1:]] + [path.stat().st_size]
    sizes = {tensor.name: end - tensor.offset for tensor, end in zip(tensors, ends, strict=True)}
    return sum(sizes.values()) - (sizes["token_embd.weight"] if "output.weight" in sizes else 0)
