"""Tensors of a GGUF file under Hugging Face's names and in its layout, one after another.

Quantized ones are expanded. Knows no files to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from engine.errors import UnsupportedModel
from engine.gguf_families import GgufFamily
from engine.gguf_meta import GgufMeta
from engine.gguf_rope import FREQUENCIES, LONG, SHORT

_IN_CONFIG = (FREQUENCIES, LONG, SHORT)
"""Tensors that config.json already tells."""

_TYPES = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"),
)


def expanded(meta: GgufMeta, family: GgufFamily, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, int]]:
    """Name, tensor, and the bytes of the file read for it.

    Raises UnsupportedModel for a tensor the family does not have, or of a type that cannot be expanded.
    """
    for entry in meta.reader.tensors:
        if entry.name in _IN_CONFIG:
            continue
        name, part = _name(entry.name, family)
        values = _laid_out(_values(entry), part, family, meta).to(dtype)
        if "{}" not in name:
            yield name, values.contiguous(), entry.n_bytes
            continue
        for expert, matrix in enumerate(values):
            yield name.format(expert), matrix.contiguous(), entry.n_bytes if expert == 0 else 0


def size(meta: GgufMeta) -> int:
    """Bytes of all tensors that `expanded` gives."""
    return sum(int(entry.n_bytes) for entry in meta.reader.tensors if entry.name not in _IN_CONFIG)


def _name(name: str, family: GgufFamily) -> tuple[str, str]:
    """Hugging Face name, with "{}" for the number of an expert, and the part of a layer ("" outside one)."""
    stem, _, kind = name.rpartition(".")
    if kind in ("weight", "bias"):
        if stem in family.ends:
            return f"{family.ends[stem]}.{kind}", ""
        prefix, _, rest = stem.partition(".")
        layer, _, part = rest.partition(".")
        if prefix == "blk" and (module := {**family.parts, **family.experts}.get(part)):
            return f"{family.layers_at}.{layer}.{module}.{kind}", part
    raise UnsupportedModel(f"GGUF tensor {name} is not of the file's architecture")


def _values(entry: Any) -> Tensor:
    if (kind := entry.tensor_type.name) not in _TYPES:
        allowed = ", ".join(_TYPES)
        raise UnsupportedModel(
            f"GGUF tensor type {kind} of {entry.name} is not supported; supported: {allowed}"
        )
    return torch.from_numpy(np.array(gguf.dequantize(entry.data, entry.tensor_type), np.float32))


def _laid_out(values: Tensor, part: str, family: GgufFamily, meta: GgufMeta) -> Tensor:
    if part in family.paired:
        heads = meta.count("attention.head_count")
        return _halves(values, heads if part == "attn_q" else meta.count("attention.head_count_kv", heads))
    if part in family.transposed and values.dim() == 2:
        return values.T
    return values - family.norm_shift if values.dim() == 1 and family.norm_shift else values


def _halves(values: Tensor, heads: int) -> Tensor:
    """GGUF keeps the two members of a rotated pair side by side, Hugging Face in the head's two halves."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.transpose(1, 2).reshape(values.shape)
