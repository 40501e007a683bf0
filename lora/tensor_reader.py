"""Reading tensors of an adapter file and of its base. Alone in this package it opens a file of tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lora.adapter import Adapter
from lora.errors import InvalidWeights, NotFinite
from lora.file_access import accessing
from lora.match_report import MatchedModule
from lora.tensor_names import Part


class BaseReader(Protocol):
    """The part of engine.base_tensors.BaseTensors that is needed here."""

    def take(self, name: str) -> Tensor | None: ...


class TensorReader:
    """The tensors of one adapter as they are in its file, in memory of their own."""

    def __init__(self, file: Any) -> None:
        """file: an open safetensors file."""
        self._file = file

    def get(self, module: MatchedModule, part: Part) -> Tensor:
        """Raises NotFinite if it holds NaN or infinity."""
        name = module.parts[part].name
        return finite(name, self._file.get_tensor(name).clone())

    def find(self, module: MatchedModule, part: Part) -> Tensor | None:
        """The same, None where the module has no such part."""
        return self.get(module, part) if part in module.parts else None


@contextmanager
def reading(adapter: Adapter) -> Iterator[TensorReader]:
    """Raises InvalidWeights where the file is not what its header said, AdapterNotFound where it is gone."""
    path = adapter.weights_file
    try:
        with accessing(path), safe_open(path, framework="pt") as file:
            yield TensorReader(file)
    except SafetensorError as error:
        raise InvalidWeights(f"it changed while it was read, or is damaged: {error}") from error


def finite(name: str, tensor: Tensor) -> Tensor:
    """The tensor itself. Raises NotFinite."""
    # One pass at the memory's rate; a test of each value takes many times as long.
    if tensor.numel() and not all(map(torch.isfinite, tensor.aminmax())):
        raise NotFinite(name, tensor.numel() - int(torch.isfinite(tensor).sum()))
    return tensor


def as_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor as `dtype`, contiguous. Raises NotFinite where only that makes a value infinite."""
    return finite(name, tensor.to(dtype).contiguous())
