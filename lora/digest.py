"""Content digests: what an adapter is, and what a base model is, whatever they are called."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lora.errors import InvalidDigest, InvalidWeights
from lora.file_access import accessing
from lora.safetensors_header import TensorInfo

_PREFIX = "sha256:"
_VALID = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK = 1 << 20


def adapter_digest(
    config: Mapping[str, Any], chat_template: str | None, weights: Path, tensors: Mapping[str, TensorInfo]
) -> str:
    """Digest over the canonical config, the chat template and every tensor (name, dtype, shape, bytes).

    The order of the file, its own metadata and the names of the files do not matter. Raises InvalidWeights
    if the file becomes shorter meanwhile, and what accessing() raises.
    """
    total = hashlib.sha256()
    total.update(_line({"noria": "adapter-2", "config": config, "chat_template": chat_template}))
    try:
        with accessing(weights), weights.open("rb") as file:
            for name in sorted(tensors):
                tensor = tensors[name]
                total.update(_line([name, tensor.dtype, tensor.shape]))
                file.seek(tensor.start)
                _feed(total, file, tensor.size)
    except EOFError as error:
        raise InvalidWeights(str(error)) from error
    return _PREFIX + total.hexdigest()


def base_digest(model_folder: Path) -> str:
    """Digest over a base model's config.json and safetensors files.

    Reading gigabytes is slow, so the answer is kept beside the folder and used again while every file has the
    same size and modification time. Raises FileNotFoundError if the folder has no config.json or no weights.
    """
    config, weights = model_folder / "config.json", sorted(model_folder.glob("*.safetensors"))
    if not weights:
        raise FileNotFoundError(f"no safetensors file in {model_folder}")
    files = [config, *weights]
    state: list[list[str | int]] = [
        [path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files
    ]
    cache = model_folder.parent / f".{model_folder.name}.digest.json"
    if known := _cached(cache, state):
        return known
    digest = _PREFIX + _digest_files(files)
    _remember(cache, {"files": state, "digest": digest})
    return digest


def check_digest(digest: str) -> str:
    """The digest itself. Raises InvalidDigest unless it is "sha256:" and 64 lower-case hexadecimal digits."""
    if not _VALID.fullmatch(digest):
        raise InvalidDigest(digest)
    return digest


def is_digest(text: str | None) -> bool:
    """Whether a text has the form of a digest."""
    return text is not None and _VALID.fullmatch(text) is not None


def _digest_files(files: Iterable[Path]) -> str:
    total = hashlib.sha256(_line({"noria": "base-1"}))
    for path in files:
        size = path.stat().st_size
        total.update(_line([path.name, size]))
        with path.open("rb") as file:
            _feed(total, file, size)
    return total.hexdigest()


def _line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _feed(total: "hashlib._Hash", file: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = file.read(min(size, _CHUNK))
        if not chunk:
            raise EOFError(f"{Path(file.name).name} became shorter while it was read")
        total.update(chunk)
        size -= len(chunk)


def _cached(cache: Path, state: list[list[str | int]]) -> str | None:
    try:
        known = json.loads(cache.read_bytes())
        digest = known["digest"] if known["files"] == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) and is_digest(digest) else None


def _remember(cache: Path, record: dict[str, object]) -> None:
    """Best effort: a model on a read-only volume is hashed anew by each process."""
    temporary = cache.with_name(f"{cache.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(record))
        temporary.replace(cache)
    except OSError:
        temporary.unlink(missing_ok=True)
