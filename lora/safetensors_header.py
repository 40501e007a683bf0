"""The header of a safetensors file: which tensors it holds and where their bytes are.

Layout: 8 bytes little-endian header length, the header as JSON, then the data without gaps. Only metadata
is read here, so no tensor library is needed and a damaged file is told apart before one sees it.
Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora.errors import InvalidWeights, LimitExceeded
from lora.file_access import accessing, each_name_once
from lora.limits import Limits

_LENGTH_BYTES = 8
_NAME_LENGTH = 512
_MOST_DIMENSIONS = 8
_MOST = (1 << 63) - 1
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `dtype` is F32, F16 or BF16; its bytes are [start, start + size) of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


def read_header(path: Path, limits: Limits) -> dict[str, TensorInfo]:
    """Tensors by name. Raises InvalidWeights (damaged), LimitExceeded (too large), or as accessing() does."""
    with accessing(path):
        return _read(path, limits)


def _read(path: Path, limits: Limits) -> dict[str, TensorInfo]:
    file_bytes = path.stat().st_size
    if file_bytes > limits.weights_bytes:
        raise LimitExceeded("size of adapter_model.safetensors in bytes", file_bytes, limits.weights_bytes)
    if file_bytes < _LENGTH_BYTES:
        raise InvalidWeights(f"truncated: {file_bytes} bytes, a header alone needs more than {_LENGTH_BYTES}")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > file_bytes - _LENGTH_BYTES:
            raise InvalidWeights(f"header length {length} is beyond the end of the file ({file_bytes} bytes)")
        if length > limits.header_bytes:
            raise LimitExceeded("size of the safetensors header in bytes", length, limits.header_bytes)
        entries = _parse_json(file.read(length))
    _check_metadata(entries.pop("__metadata__", {}))
    if len(entries) > limits.tensors:
        raise LimitExceeded("number of tensors", len(entries), limits.tensors)
    data_start = _LENGTH_BYTES + length
    tensors = {name: _tensor(name, entry, data_start) for name, entry in entries.items()}
    _check_layout(tensors, data_start, file_bytes)
    return tensors


def _parse_json(raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=each_name_once)
    except (ValueError, RecursionError) as error:
        raise InvalidWeights(f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise InvalidWeights("the header is not a JSON object")
    return header


def _check_metadata(value: object) -> None:
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise InvalidWeights("the header's __metadata__ is not an object of texts")


def _tensor(name: str, entry: object, data_start: int) -> TensorInfo:
    if not (0 < len(name) <= _NAME_LENGTH and name.isascii() and name.isprintable()):
        raise InvalidWeights(f"a tensor's name is not 1 to {_NAME_LENGTH} printable ASCII characters")
    if not isinstance(entry, dict):
        raise InvalidWeights("damaged header entry", [name])
    dtype = entry.get("dtype")
    shape, offsets = _naturals(entry.get("shape")), _naturals(entry.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2:
        raise InvalidWeights("damaged header entry", [name])
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise InvalidWeights(f"dtype {dtype!r}, allowed: {', '.join(_ITEM_BYTES)}", [name])
    size = offsets[1] - offsets[0]
    if size != math.prod(shape) * _ITEM_BYTES[dtype]:
        raise InvalidWeights(f"{size} bytes do not make a {dtype} tensor of shape {shape}", [name])
    return TensorInfo(name, dtype, tuple(shape), data_start + offsets[0], size)


def _naturals(value: object) -> list[int] | None:
    if not isinstance(value, list) or len(value) > _MOST_DIMENSIONS:
        return None
    if not all(type(item) is int and 0 <= item <= _MOST for item in value):
        return None
    return value


def _check_layout(tensors: dict[str, TensorInfo], data_start: int, file_bytes: int) -> None:
    """Tensors must tile the data exactly: no gap, no overlap, nothing missing, nothing behind."""
    position = data_start
    for tensor in sorted(tensors.values(), key=lambda item: (item.start, item.size)):
        if tensor.start != position:
            raise InvalidWeights("tensors overlap or leave a gap", [tensor.name])
        position += tensor.size
    if position != file_bytes:
        raise InvalidWeights(f"truncated or overlong: {file_bytes} bytes, the header describes {position}")
