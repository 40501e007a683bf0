"""Names of the tensors in an adapter file: which module and which of its two matrices each one is."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lora.errors import InvalidWeights, UnsupportedFeature
from lora.safetensors_header import TensorInfo

_WRAPPER = "base_model.model."
_LORA = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")

_FEATURES = {
    ".lora_magnitude_vector": "use_dora",
    ".lora_embedding_": "LoRA on embeddings",
    ".lora_B.bias": "lora_bias",
    ".trainable_tokens_delta": "trainable_token_indices",
    ".base_layer.lora_": "target_parameters",
    ".base_layer.weight": "saved embeddings",
}


@dataclass(frozen=True, slots=True)
class PairInfo:
    """The two tensors of one module: `a` is [rank, in], `b` is [out, rank]."""

    a: TensorInfo
    b: TensorInfo


def pair_tensors(tensors: Mapping[str, TensorInfo]) -> dict[str, PairInfo]:
    """Pairs by module name, the wrapper's "base_model.model." taken off.

    Raises UnsupportedFeature for tensors of a feature that is not served, InvalidWeights for all else.
    """
    if not tensors:
        raise InvalidWeights("it holds no tensors")
    sides: dict[str, dict[str, TensorInfo]] = {}
    unknown: list[str] = []
    for name, tensor in sorted(tensors.items()):
        _refuse_feature(name)
        match = _LORA.fullmatch(name.removeprefix(_WRAPPER))
        if match is None:
            unknown.append(name)
        elif sides.setdefault(match["module"], {}).setdefault(match["side"], tensor) is not tensor:
            raise InvalidWeights("two tensors for one matrix", [name])
    if unknown:
        raise InvalidWeights(
            "not LoRA tensors (modules_to_save and saved embeddings are not supported)", unknown
        )
    _check_dimensions(tensors.values())
    lonely = [module for module, found in sides.items() if len(found) != 2]
    if lonely:
        raise InvalidWeights("one of lora_A and lora_B is absent for", lonely)
    return {module: PairInfo(found["A"], found["B"]) for module, found in sides.items()}


def _refuse_feature(name: str) -> None:
    for mark, feature in _FEATURES.items():
        if mark in name:
            raise UnsupportedFeature(feature, name)


def _check_dimensions(tensors: Iterable[TensorInfo]) -> None:
    flat = [tensor.name for tensor in tensors if len(tensor.shape) == 1]
    if flat:
        raise InvalidWeights(
            "1-D tensors, as a sharded (FSDP, ZeRO) model leaves when it is saved without gathering", flat
        )
    odd = [tensor.name for tensor in tensors if len(tensor.shape) != 2 or 0 in tensor.shape]
    if odd:
        raise InvalidWeights("LoRA matrices must have two dimensions, none of them 0", odd)
