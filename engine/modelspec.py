"""What a model is, read from its folder's config.json: shapes, RoPE, windows, end tokens.

Which architectures there are and how each is told is in families.py. This module knows no tensors and
imports no torch, so that a gateway or a validator can use it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from engine import tensor_names
from engine.adapter_targets import AdapterTargets, targets_of
from engine.config import BLOCK_SIZE
from engine.errors import UnsupportedModel
from engine.families import FAMILIES, Family
from engine.kv_groups import KVGroups, group_layers
from engine.layer_modules import LLAMA, ExpertSpec, Groups, module_shapes
from engine.ropespec import Json, RopeSpec
from engine.tensor_names import TensorNames

ENCODERS = ("BertModel",)
"""Architectures that only embed: no ModelSpec describes them, and nothing ends their texts."""

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "int8": 1}
SCALE_BYTES: Mapping[str, int] = {"int8": 4}
"""Of the scale beside each key and each value of one head, by the dtypes that need one."""

ATTENTION_COST = 1.4
"""Time of a product in attention, whose operands are short, beside one of the linear layers (bench.gap)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Immutable description of one decoder-only model.

    rms_norm_eps: also LayerNorm's, where that is the family's norm. query_scale: factor of the scores,
    None for head_dim ** -0.5. Soft caps bound scores and logits by cap * tanh(x / cap). local_rope:
    rotation of the layers with a window, where it is another one. norm: "rms", "offset_rms" (its weights
    are kept less 1) or "layer". first_place: row of position 0 in the table of learned positions.
    transposed: the checkpoint keeps linear weights as [in, out].
    """

    family: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rms_norm_eps: float
    tie_embeddings: bool
    windows: tuple[int | None, ...]
    rope: RopeSpec
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    layers_at: str = "model.layers"
    groups: Groups = field(default_factory=lambda: LLAMA)
    names: TensorNames = tensor_names.LLAMA
    norm: str = "rms"
    first_place: int = 0
    transposed: bool = False
    activation: str = "silu"
    query_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    local_rope: RopeSpec | None = None
    experts: ExpertSpec | None = None

    @property
    def adapter_targets(self) -> AdapterTargets:
        """What an adapter may change."""
        return targets_of(self)

    @property
    def linear_modules(self) -> Mapping[str, tuple[int, int]]:
        """Linear modules of all layers, experts apart: Hugging Face module name -> (out, in)."""
        shapes = self.module_shapes()
        return {
            f"{self.layers_at}.{layer}.{module}": shape
            for layer in range(self.num_layers)
            for module, shape in shapes.items()
        }

    def module_shapes(self) -> dict[str, tuple[int, int]]:
        """(out, in) of the linear modules of one layer, by their name within the layer; no experts."""
        return module_shapes(
            self.groups,
            hidden=self.hidden_size,
            inner=self.intermediate_size,
            queries=self.num_heads * self.head_dim,
            keys=self.num_kv_heads * self.head_dim,
        )

    @property
    def place_rows(self) -> int:
        """Rows of the table of learned positions; 0 where positions rotate."""
        return self.first_place + self.max_position if self.names.places else 0

    @property
    def kv_groups(self) -> KVGroups:
        """Its layers by what they keep of a text; a window as wide as the longest text served is none."""
        longest = min(self.max_position, self.rope.length or self.max_position)
        return group_layers(
            [None if window is None or window >= longest else window for window in self.windows]
        )

    def block_bytes(self, dtype: str) -> int:
        """Bytes of one block: K and V of BLOCK_SIZE tokens in every layer of a KV group."""
        per_head = self.head_dim * DTYPE_BYTES[dtype] + SCALE_BYTES.get(dtype, 0)
        return BLOCK_SIZE * 2 * self.kv_groups.depth * self.num_kv_heads * per_head

    def attention_balance(self) -> float:
        """Context at which a token's attention takes as long as its products; inf if no layer sees all."""
        products = sum(rows * columns for rows, columns in self.module_shapes().values())
        if self.experts is not None:
            products += 3 * self.hidden_size * self.experts.width * self.experts.per_token
        pairs = 2 * self.num_heads * self.head_dim * self.windows.count(None)
        return products * self.num_layers / (ATTENTION_COST * pairs) if pairs else math.inf

    def serving(self, length: int | None) -> Self:
        """The model where no text grows over `length` tokens (None: as long as the model allows)."""
        served = self.max_position if length is None else min(length, self.max_position)
        return replace(self, rope=replace(self.rope, length=served))


def read_spec(folder: Path, *, headless: bool = False) -> ModelSpec:
    """Read `folder`/config.json (and generation_config.json for the end tokens).

    headless: nobody asks for logits, so a model saved without its head is read as well, and tied stands
    for "no matrix of its own". Raises UnsupportedModel naming the key, the value met and the values allowed.
    """
    given = read_json(folder / "config.json")
    family = _family(given, headless)
    config = family.complete(given)
    _check_common(config)
    layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    facts: dict[str, Any] = {
        "family": family.name,
        "hidden_size": int(config["hidden_size"]),
        "intermediate_size": int(config["intermediate_size"]),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": head_dim,
        "vocab_size": int(config["vocab_size"]),
        "max_position": int(config["max_position_embeddings"]),
        "rms_norm_eps": float(config.get("rms_norm_eps", 1e-6)),
        "tie_embeddings": bool(config.get("tie_word_embeddings", False)),
        "windows": (None,) * layers,
        "rope": family.rope(config, head_dim),
        "bos_token_id": config.get("bos_token_id"),
        "eos_token_ids": _eos_ids(folder, config),
    }
    if headless:
        facts["tie_embeddings"] = True
    return ModelSpec(**{**facts, **family.facts(config, layers)})


def is_encoder(folder: Path) -> bool:
    """Whether `folder` holds one of ENCODERS. Raises UnsupportedModel where config.json cannot be read."""
    return not set(ENCODERS).isdisjoint(read_json(folder / "config.json").get("architectures") or ())


def read_json(path: Path) -> dict[str, Any]:
    """The object a JSON file holds. Raises UnsupportedModel."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnsupportedModel(f"{path} is missing; a folder in Hugging Face layout is needed") from None
    except ValueError as error:
        raise UnsupportedModel(f"{path} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise UnsupportedModel(f"{path} holds a {type(loaded).__name__}; an object is needed")
    return loaded


def _family(config: Json, headless: bool) -> Family:
    name = (config.get("architectures") or ["(none named)"])[0]
    family = FAMILIES.get(name)
    if family is None and headless:
        family = FAMILIES.get(f"{name.removesuffix('Model')}ForCausalLM")
    if family is None:
        raise UnsupportedModel(f"architecture {name} is not supported; supported: {', '.join(FAMILIES)}")
    return family


def _check_common(config: Json) -> None:
    required = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if missing := [key for key in required if config.get(key) is None]:
        raise UnsupportedModel(f"config.json lacks {', '.join(missing)}")
    if (quantization := config.get("quantization_config")) is not None:
        raise UnsupportedModel(f"quantization {quantization} is not supported; supported: plain tensors")


def _eos_ids(folder: Path, config: Json) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    generation = read_json(path) if path.exists() else {}
    ids = generation.get("eos_token_id", config.get("eos_token_id"))
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (int(ids),)
