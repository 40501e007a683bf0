"""What an adapter is: a PEFT LoRA folder, read, checked and identified by its content.

It looks at metadata only (no tensor library) and knows neither the engine nor the database. The base model
comes in as plain data in `check_against`.
"""

from pathlib import Path

from lora.adapter import Adapter
from lora.adapter_files import FileInfo, adapter_files, file_infos, present_files, read_chat_template
from lora.digest import adapter_digest, base_digest, check_digest, is_digest
from lora.errors import AdapterNotFound, UnsupportedFeature
from lora.limits import DEFAULT_LIMITS, Limits
from lora.match_report import MatchedModule, MatchReport
from lora.matching import check_against
from lora.paths import resolve_adapter_path
from lora.peft_config import CONFIG_FILE, WEIGHTS_FILE, AdapterConfig, parse_config
from lora.safetensors_header import TensorInfo, read_header
from lora.tensor_names import Part, sort_tensors
from lora.twins import check_twins

__all__ = [
    "CONFIG_FILE",
    "DEFAULT_LIMITS",
    "WEIGHTS_FILE",
    "Adapter",
    "AdapterConfig",
    "FileInfo",
    "Limits",
    "MatchReport",
    "MatchedModule",
    "Part",
    "TensorInfo",
    "adapter_files",
    "base_digest",
    "check_against",
    "check_digest",
    "is_digest",
    "present_files",
    "read_adapter",
    "resolve_adapter_path",
]

_PICKLE_FILE = "adapter_model.bin"


def read_adapter(
    folder: Path, *, limits: Limits = DEFAULT_LIMITS, known_digest: str | None = None
) -> Adapter:
    """Read and check everything that needs no base model, and compute the digest.

    `known_digest` saves reading the tensors where the caller has just compared them with it.
    Raises AdapterNotFound or an InvalidAdapter.
    """
    config = parse_config(folder, limits)
    weights = folder / WEIGHTS_FILE
    if not weights.is_file():
        if (folder / _PICKLE_FILE).is_file():
            raise UnsupportedFeature(_PICKLE_FILE, "a pickle", "save the adapter as safetensors")
        raise AdapterNotFound(folder.name, WEIGHTS_FILE)
    tensors = read_header(weights, limits)
    named = sort_tensors(tensors)
    template, source = read_chat_template(folder, limits)
    files = {}
    if known_digest is None:
        check_twins(weights, named.twins)
        files = file_infos(folder, tuple(filter(None, (CONFIG_FILE, WEIGHTS_FILE, source))))
    digest = known_digest or adapter_digest(config.canonical(), template, weights, tensors)
    return Adapter(folder, digest, config, tensors, named.modules, named.mapped, files, template)
