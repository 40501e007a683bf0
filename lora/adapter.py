"""The record of one adapter version: where it lies, what identifies it, what it holds. Metadata only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lora.adapter_files import FileInfo
from lora.peft_config import WEIGHTS_FILE, AdapterConfig
from lora.safetensors_header import TensorInfo
from lora.tensor_names import Parts


@dataclass(frozen=True, slots=True)
class Adapter:
    """An immutable adapter version. `bytes` is the size of its tensors, `rank` the largest of any module.

    `modules` names modules as the model that was trained does; MatchReport names them as the base does.
    `mapped` is what was unusual in the names of its tensors. `files` is empty where the digest was known.
    `chat_template` is Jinja text in place of the base's, None where the adapter has none.
    """

    folder: Path
    digest: str
    config: AdapterConfig
    tensors: Mapping[str, TensorInfo] = field(repr=False)
    modules: Mapping[str, Parts] = field(repr=False)
    mapped: tuple[str, ...]
    files: Mapping[str, FileInfo] = field(repr=False)
    chat_template: str | None = field(repr=False)

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
