"""Safetensors of a model folder, written in pieces, so that no more than one piece is held in memory."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

SHARD_BYTES = 2 << 30


class ShardWriter:
    """Collects tensors and writes a shard whenever `shard_bytes` are together; `close` names the files."""

    def __init__(self, folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder = folder
        self._limit = shard_bytes
        self._held: dict[str, Tensor] = {}
        self._held_bytes = 0
        self._total = 0
        self._shards: list[list[str]] = []

    def add(self, name: str, tensor: Tensor) -> None:
        """Raises OSError where the disk takes no more."""
        if self._held and self._held_bytes + tensor.nbytes > self._limit:
            self._flush()
        self._held[name] = tensor
        self._held_bytes += tensor.nbytes
        self._total += tensor.nbytes

    def close(self) -> None:
        """One file and no index, or shards and their index, as transformers names them."""
        self._flush()
        count = len(self._shards)
        if count == 1:
            self._part(0).rename(self._folder / "model.safetensors")
            return
        weight_map: dict[str, str] = {}
        for number, names in enumerate(self._shards):
            final = f"model-{number + 1:05}-of-{count:05}.safetensors"
            self._part(number).rename(self._folder / final)
            weight_map |= dict.fromkeys(names, final)
        index = {"metadata": {"total_size": self._total}, "weight_map": weight_map}
        (self._folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")

    def _flush(self) -> None:
        save_file(self._held, self._part(len(self._shards)), metadata={"format": "pt"})
        self._shards.append(list(self._held))
        self._held, self._held_bytes = {}, 0

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number}.safetensors"
