"""Metadata of a GGUF file: keys of its architecture, shapes, small tensors; and what nobody asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from engine.errors import UnsupportedModel

_NEUTRAL = (None, False, 0, 0.0, "none")
"""Values of a key that change nothing, whatever the key."""


class GgufMeta:
    """What the file says beside its large tensors. Raises UnsupportedModel for what is no GGUF file."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.reader = _open(source)
        self.values: dict[str, Any] = {key: field.contents() for key, field in self.reader.fields.items()}
        self.shapes: dict[str, tuple[int, ...]] = {
            tensor.name: tuple(reversed(tensor.shape.tolist())) for tensor in self.reader.tensors
        }
        self._read: set[str] = set()
        self.architecture = str(self.values.get("general.architecture"))
        if (parts := self.values.get("split.count", 0)) > 1:
            raise UnsupportedModel(f"{source} is one of {parts} parts of a split file; merge them first")

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key` of the architecture."""
        name = f"{self.architecture}.{key}"
        self._read.add(name)
        return self.values.get(name, default)

    def need(self, key: str) -> Any:
        """The value of `key` of the architecture. Raises UnsupportedModel where the file has none."""
        if (value := self.get(key)) is None:
            raise UnsupportedModel(f"{self.source} lacks the metadata {self.architecture}.{key}")
        return value

    def count(self, key: str, default: Any = None) -> int:
        """A number that holds for all layers; a list is taken where its members are equal."""
        value = self.need(key) if default is None else self.get(key, default)
        distinct = set(value) if isinstance(value, list) else {value}
        if len(distinct) != 1:
            raise UnsupportedModel(f"{self.architecture}.{key} differs between layers: {value}")
        return int(distinct.pop())

    def decimal(self, key: str, default: float) -> float:
        """A float32 figure of the file as the decimal it was made from."""
        return decimal(self.get(key, default))

    def expect(self, key: str, *allowed: object) -> None:
        """Raises UnsupportedModel where the file has another value than those."""
        if (value := self.get(key)) is not None and value not in allowed:
            shown = ", ".join(map(str, allowed))
            raise UnsupportedModel(f"{self.architecture}.{key} {value} is not supported; supported: {shown}")

    def skip(self, *keys: str) -> None:
        """Keys that say nothing about what is computed."""
        self._read.update(f"{self.architecture}.{key}" for key in keys)

    def expect_all_read(self) -> None:
        """Raises UnsupportedModel for a key of the architecture that may mean something and nobody read."""
        prefix = f"{self.architecture}."
        for key, value in self.values.items():
            if key.startswith(prefix) and key not in self._read and value not in _NEUTRAL:
                raise UnsupportedModel(f"GGUF metadata {key} = {value} is not known to the importer")

    def numbers(self, tensor: str) -> list[float]:
        """Values of a small tensor."""
        found = next(entry for entry in self.reader.tensors if entry.name == tensor)
        return [decimal(value) for value in gguf.dequantize(found.data, found.tensor_type).flatten()]


def decimal(value: float) -> float:
    """A float32 number as the decimal it was made from."""
    return float(str(np.float32(value)))


def _open(source: Path) -> Any:
    try:
        return gguf.GGUFReader(source)
    except ValueError as error:
        raise UnsupportedModel(f"{source} is not a GGUF file: {error}") from error
