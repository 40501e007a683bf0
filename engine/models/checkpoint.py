"""Tensors of a model folder as the engine holds them, and the proof that all were taken. Knows no layers."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from engine.errors import BadWeights
from engine.tensor_files import TensorFiles

_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_BUFFERS = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", "position_ids")
"""Ends of the names of tensors that older checkpoints hold though they follow from the configuration."""


class Checkpoint:
    """Context manager that hands out each tensor by name and knows which nobody took.

    Raises BadWeights for a missing file or tensor, a wrong shape, a damaged file or a value that is
    not finite.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, root: str = "model") -> None:
        """root: the module all but the head belong to; a checkpoint without its head may leave it out."""
        self._folder = folder
        self._dtype = dtype
        self._files = TensorFiles(folder, root)
        self._untaken = set(self._files.names)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._files

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name` in the engine's dtype: the file's own memory, or new where it is converted."""
        if name not in self._files.names:
            raise BadWeights(f"{self._folder} lacks tensor {name} of shape {list(shape)}")
        tensor = self._files.get(name)
        if tuple(tensor.shape) != shape:
            raise BadWeights(f"tensor {name} has shape {list(tensor.shape)}; config.json asks {list(shape)}")
        if tensor.dtype not in _DTYPES:
            allowed = ", ".join(map(str, _DTYPES))
            raise BadWeights(f"tensor {name} has dtype {tensor.dtype}; supported: {allowed}")
        # One pass at the memory's rate; a test of each value would take fifty times as long.
        if not all(map(torch.isfinite, tensor.aminmax())):
            raise BadWeights(f"tensor {name} holds values that are not finite")
        self._untaken.discard(name)
        return tensor.to(self._dtype)

    def ignore(self, *names: str) -> None:
        """Tensors that may be present though nobody takes them."""
        self._untaken.difference_update(names)

    def expect_empty(self) -> None:
        """Raises BadWeights where the folder holds a tensor that no layer took."""
        left = sorted(name for name in self._untaken if not name.endswith(_BUFFERS))
        if left:
            shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            raise BadWeights(f"{self._folder} holds tensors the architecture does not have: {shown}")
