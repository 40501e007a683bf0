"""Single tensors of a base model by module, for what an adapter computes from them. Knows no adapters."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from engine.embeddingspec import read_text_model
from engine.tensor_files import TensorFiles

_HEAD = "lm_head.weight"


class BaseTensors:
    """Reads a model folder on demand, from any thread. Its files stay mapped as long as it lives."""

    def __init__(self, folder: Path) -> None:
        """Raises UnsupportedModel or BadWeights."""
        spec = read_text_model(folder)
        embedding, tied = spec.adapter_targets.embedding, spec.adapter_targets.tied
        self._files = TensorFiles(folder, embedding.partition(".")[0])
        self._head = f"{embedding}.weight" if tied else _HEAD
        self._turned = {f"{name}.weight" for name in spec.linear_modules} if spec.transposed else set()

    def take(self, name: str) -> Tensor | None:
        """The tensor `name`, a module's ".weight" or ".bias", None where the base has none of that name.

        In the file's own dtype and memory, not to be written to; weights of linear modules are [out, in]
        in every family, and a tied head is the token table. Raises BadWeights for a damaged file.
        """
        name = self._head if name == _HEAD else name
        if name not in self._files.names:
            return None
        tensor = self._files.get(name)
        return tensor.T if name in self._turned else tensor
