"""Names of the tensors in an adapter file: which module each one belongs to, and as which part of it.

PEFT strips its wrappers' names when it saves, but not always: a model that was compiled, sharded or wrapped
leaves their names inside, older versions write DoRA's magnitude with ".weight", and a plain state dict
still has the adapter's name "default". All of these are read as what they mean, and what was mapped is told.
Source: peft 0.21, utils.save_and_load.get_peft_model_state_dict.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lora.errors import InvalidWeights
from lora.safetensors_header import TensorInfo


class Part(StrEnum):
    """What a tensor is to its module; the shapes are those of PEFT's files."""

    A = "lora_A"  # [r, in]
    B = "lora_B"  # [out, r]
    B_BIAS = "lora_B.bias"  # [out]
    EMBEDDING_A = "lora_embedding_A"  # [r, vocab]
    EMBEDDING_B = "lora_embedding_B"  # [hidden, r]
    MAGNITUDE = "lora_magnitude_vector"  # [out], of the embedding [hidden]
    TOKENS = "trainable_tokens_delta"  # [tokens, hidden]
    WEIGHT = "weight"  # in place of the module's own
    BIAS = "bias"  # in place of the module's own
    BASE_WEIGHT = "base_layer.weight"  # repeats the base's
    BASE_BIAS = "original_module.bias"  # repeats the base's


WRAPPER = "base_model.model."
_SHELLS = re.compile(r"(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_ADAPTER = r"(?:\.default)?"
_FORMS: tuple[tuple[Part, re.Pattern[str]], ...] = tuple(
    (part, re.compile(rf"(?P<module>.+?)\.{form}"))
    for part, form in (
        (Part.A, rf"lora_A{_ADAPTER}\.weight"),
        (Part.B, rf"lora_B{_ADAPTER}\.weight"),
        (Part.B_BIAS, rf"lora_B{_ADAPTER}\.bias"),
        (Part.EMBEDDING_A, rf"lora_embedding_A{_ADAPTER}"),
        (Part.EMBEDDING_B, rf"lora_embedding_B{_ADAPTER}"),
        (Part.MAGNITUDE, rf"lora_magnitude_vector{_ADAPTER}(?:\.weight)?"),
        (Part.TOKENS, rf"token_adapter\.trainable_tokens_delta{_ADAPTER}"),
        (Part.BASE_WEIGHT, r"(?:token_adapter\.)?(?:base_layer|original_module)\.weight"),
        (Part.BASE_BIAS, r"original_module\.bias"),
        (Part.BIAS, r"(?:base_layer\.)?bias"),
        (Part.WEIGHT, r"weight"),
    )
)
_SAVED_TWICE = re.compile(rf"(?P<module>.+)\.modules_to_save{_ADAPTER}\.(?P<part>weight|bias)")
_MATRICES = (Part.A, Part.B, Part.EMBEDDING_A, Part.EMBEDDING_B, Part.TOKENS)
_PAIRS = ((Part.A, Part.B), (Part.EMBEDDING_A, Part.EMBEDDING_B))

Parts = Mapping[Part, TensorInfo]
"""The tensors of one module."""


@dataclass(frozen=True, slots=True)
class NamedTensors:
    """The tensors of a file by module, as the model that was trained calls it.

    twins: tensors that the file holds twice, (kept, other). mapped: what was taken out of the names.
    """

    modules: Mapping[str, Parts]
    twins: tuple[tuple[TensorInfo, TensorInfo], ...]
    mapped: tuple[str, ...]


def sort_tensors(tensors: Mapping[str, TensorInfo]) -> NamedTensors:
    """Every tensor to its module. Raises InvalidWeights for a name or number of dimensions that fits none."""
    if not tensors:
        raise InvalidWeights("it holds no tensors")
    modules: dict[str, dict[Part, TensorInfo]] = {}
    mapped: set[str] = set()
    unknown: list[str] = []
    saved_twice: list[tuple[str, Part, TensorInfo]] = []
    for name, tensor in sorted(tensors.items()):
        bare = _bare(name, mapped)
        if match := _SAVED_TWICE.fullmatch(bare):
            saved_twice.append((match["module"], Part(match["part"]), tensor))
        elif found := _part(bare):
            _put(modules, *found, tensor)
            mapped.update(_old_spellings(bare, *found))
        else:
            unknown.append(name)
    if unknown:
        raise InvalidWeights("not tensors of a LoRA adapter", unknown)
    twins = []
    for module, part, tensor in saved_twice:
        kept = modules.get(module, {}).get(part)
        if kept is None:
            _put(modules, module, part, tensor)
        else:
            twins.append((kept, tensor))
    _check_dimensions(modules)
    _check_pairs(modules)
    return NamedTensors(modules, tuple(twins), tuple(sorted(mapped)))


def _bare(name: str, mapped: set[str]) -> str:
    """The name without wrappers; what is unusual about it goes to `mapped`."""
    inner = _SHELLS.sub("", name)
    if inner != name:
        mapped.update(shell.rstrip(".") for shell in _SHELLS.findall(name))
    if not inner.startswith(WRAPPER):
        mapped.add(f"{WRAPPER}* is missing")
    return inner.removeprefix(WRAPPER)


def _part(name: str) -> tuple[str, Part] | None:
    for part, form in _FORMS:
        if match := form.fullmatch(name):
            return match["module"], part
    return None


def _old_spellings(name: str, module: str, part: Part) -> set[str]:
    """What PEFT would no longer write in a name."""
    rest = name.removeprefix(module)
    spelled = {".default"} if ".default" in rest else set()
    return spelled | ({f".{part}.weight"} if part is Part.MAGNITUDE and rest.endswith(".weight") else set())


def _put(modules: dict[str, dict[Part, TensorInfo]], module: str, part: Part, tensor: TensorInfo) -> None:
    if modules.setdefault(module, {}).setdefault(part, tensor) is not tensor:
        raise InvalidWeights(
            f"two tensors for {part} of one module", [modules[module][part].name, tensor.name]
        )


def _check_dimensions(modules: Mapping[str, Parts]) -> None:
    matrices = [found[part] for found in modules.values() for part in _MATRICES if part in found]
    if flat := [tensor.name for tensor in matrices if len(tensor.shape) == 1]:
        raise InvalidWeights(
            "1-D tensors, as a sharded (FSDP, ZeRO) model leaves when it is saved without gathering", flat
        )
    if odd := [tensor.name for tensor in matrices if len(tensor.shape) != 2]:
        raise InvalidWeights("LoRA matrices must have two dimensions", odd)
    everything: Iterable[TensorInfo] = (tensor for found in modules.values() for tensor in found.values())
    if empty := [tensor.name for tensor in everything if 0 in tensor.shape or not tensor.shape]:
        raise InvalidWeights("a tensor must have dimensions, none of them 0", empty)


def _check_pairs(modules: Mapping[str, Parts]) -> None:
    for first, second in _PAIRS:
        lonely = [module for module, found in modules.items() if (first in found) != (second in found)]
        if lonely:
            raise InvalidWeights(f"one of {first} and {second} is absent for", sorted(lonely))
