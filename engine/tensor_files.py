"""The safetensors of a model folder, one file or shards behind an index: single tensors by their full name.

Knows no layers, no shapes and no dtypes.
"""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from threading import Lock
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import BadWeights

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class TensorFiles:
    """Files are mapped on first use and stay so until nothing refers to this object or to a tensor of it.

    Usable from any thread. Raises BadWeights for a missing or damaged file.
    """

    def __init__(self, folder: Path, root: str) -> None:
        """root: the module all but the head belong to; a checkpoint without its head may leave it out."""
        self._folder = folder
        self._places = _rooted(_locate(folder), f"{root}.")
        self._open: dict[str, Any] = {}
        self._lock = Lock()

    @property
    def names(self) -> Set[str]:
        """Every tensor there is."""
        return self._places.keys()

    def get(self, name: str) -> Tensor:
        """One of `names`, in the file's own dtype and memory: not to be written to."""
        file, stored = self._places[name]
        tensor: Tensor = self._mapped(file).get_tensor(stored)
        return tensor

    def _mapped(self, file: str) -> Any:
        with self._lock:
            if file not in self._open:
                try:
                    self._open[file] = safe_open(self._folder / file, framework="pt")
                except (OSError, SafetensorError) as error:
                    raise BadWeights(f"{self._folder / file} cannot be read: {error}") from error
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
