"""Tensors of a model folder: one safetensors file, or an index of shards. Knows no layers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import BadWeights

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
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
        self._files = _rooted(_locate(folder), f"{root}.")
        self._untaken = set(self._files)
        self._open: dict[str, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name` in the engine's dtype: the file's own memory, or new where it is converted."""
        if name not in self._files:
            raise BadWeights(f"{self._folder} lacks tensor {name} of shape {list(shape)}")
        file, stored = self._files[name]
        tensor: Tensor = self._shard(file).get_tensor(stored)
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

    def _shard(self, file: str) -> Any:
        if file not in self._open:
            try:
                handle = safe_open(self._folder / file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise BadWeights(f"{self._folder / file} cannot be read: {error}") from error
            self._open[file] = self._stack.enter_context(handle)
        return self._open[file]


def _rooted(files: dict[str, str], root: str) -> dict[str, tuple[str, str]]:
    """Full tensor name -> file and the name it has there."""
    if any(name.startswith(root) for name in files):
        return {name: (file, name) for name, file in files.items()}
    return {
        name if name.startswith("lm_head.") else root + name: (file, name) for name, file in files.items()
    }


def _locate(folder: Path) -> dict[str, str]:
    """Tensor name -> file name."""
    index = folder / _INDEX
    if index.exists():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): str(file) for name, file in weight_map.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadWeights(f"{index} is no shard index: {error!r}") from error
    single = folder / _SINGLE
    if not single.exists():
        raise BadWeights(f"{folder} holds neither {_SINGLE} nor {_INDEX}; safetensors weights are needed")
    try:
        with safe_open(single, framework="pt") as handle:
            return dict.fromkeys(handle.keys(), _SINGLE)
    except (OSError, SafetensorError) as error:
        raise BadWeights(f"{single} cannot be read: {error}") from error
