"""The record of one adapter version: where it lies, what identifies it, what it holds. Metadata only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lora.peft_config import WEIGHTS_FILE, AdapterConfig
from lora.safetensors_header import TensorInfo
from lora.tensor_names import PairInfo


@dataclass(frozen=True, slots=True)
class Adapter:
    """An immutable adapter version. `bytes` is the size of its tensors, `rank` the largest of any module.

    `pairs` names modules as the adapter's own file does; MatchReport names them as the base does.
    """

    folder: Path
    digest: str
    config: AdapterConfig
    tensors: Mapping[str, TensorInfo] = field(repr=False)
    pairs: Mapping[str, PairInfo] = field(repr=False)

    @property
    def bytes(self) -> int:
        """Size of all tensors together."""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def rank(self) -> int:
        """The largest rank of any module."""
        return self.config.max_rank

    @property
    def weights_file(self) -> Path:
        """Where the tensors are."""
        return self.folder / WEIGHTS_FILE
