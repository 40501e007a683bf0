"""What of an adapter fits where in a base model. Plain data, also for people."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lora.adapter_files import FileInfo
from lora.safetensors_header import TensorInfo
from lora.tensor_names import Part, Parts

_KINDS: Mapping[Part, str] = {
    Part.A: "lora",
    Part.EMBEDDING_A: "lora",
    Part.MAGNITUDE: "dora",
    Part.B_BIAS: "lora_bias",
    Part.BIAS: "bias",
    Part.WEIGHT: "saved",
    Part.TOKENS: "tokens",
    Part.BASE_WEIGHT: "copy of the base",
    Part.BASE_BIAS: "copy of the base",
}


@dataclass(frozen=True, slots=True)
class MatchedModule:
    """One module of the served model and the adapter's tensors for it. rank: 0 without a pair.

    scale: of B @ A. token_ids: whose rows Part.TOKENS holds, in its order.
    """

    parts: Parts
    rank: int
    scale: float
    token_ids: tuple[int, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is done to the module: lora, dora, lora_bias, bias, saved, tokens, copy of the base."""
        return tuple(dict.fromkeys(kind for part, kind in _KINDS.items() if part in self.parts))

    @property
    def bytes(self) -> int:
        """Of its tensors in the file."""
        return sum(tensor.size for tensor in self.parts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchReport:
    """What fits where: every tensor of the file belongs to one of `modules`.

    tokens_in_head: the head is the token table, and the adapter's rows for single tokens hold in both.
    mapped: how names of the file were read that are not what PEFT writes for this model. files: empty where
    nobody asked for the digest.
    """

    modules: Mapping[str, MatchedModule]
    base_match: Literal["digest", "name", "forced"]
    tokens_in_head: bool
    mapped: tuple[str, ...]
    warnings: tuple[str, ...]
    files: Mapping[str, FileInfo] = field(repr=False)

    @property
    def copies(self) -> tuple[TensorInfo, ...]:
        """Tensors that ought to repeat the base's; a load compares them with it and drops equal ones."""
        parts = (Part.BASE_WEIGHT, Part.BASE_BIAS)
        return tuple(
            module.parts[part] for module in self.modules.values() for part in parts if part in module.parts
        )

    def summary(self) -> dict[str, Any]:
        """As JSON data, for whoever loads the adapter."""
        return {
            "matched_modules": {
                name: {
                    "kinds": list(module.kinds),
                    "rank": module.rank,
                    "scale": module.scale,
                    "bytes": module.bytes,
                }
                for name, module in self.modules.items()
            },
            "bytes": sum(module.bytes for module in self.modules.values()),
            "base_match": self.base_match,
            "mapped": list(self.mapped),
            "copies": [tensor.name for tensor in self.copies],
            "files": {name: info.sha256 for name, info in self.files.items()},
            "warnings": list(self.warnings),
        }
