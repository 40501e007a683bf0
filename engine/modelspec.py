"""What a model is, read from its folder's config.json: shapes, RoPE, windows, end tokens, LoRA targets.

One row of `FAMILIES` is one architecture: which biases and norms it has and what an absent key of its
config means (the defaults of the Hugging Face configuration class). This module knows no tensors and
imports no torch, so that a gateway or a validator can use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import BLOCK_SIZE
from engine.errors import UnsupportedModel

Json = Mapping[str, Any]

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2}
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding parameters; `options` holds the keys that belong to `kind` (factor, beta_fast, ...).

    `dynamic` stretches only positions past `max_position`, which are never served, so it equals `default`.
    """

    kind: str
    theta: float
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Immutable description of one decoder-only model."""

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
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    rope: RopeSpec
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]

    @property
    def lora_targets(self) -> Mapping[str, tuple[int, int]]:
        """Every linear module an adapter may change: Hugging Face module name -> (out, in)."""
        shapes = self.module_shapes()
        return {
            f"model.layers.{layer}.{module}": shape
            for layer in range(self.num_layers)
            for module, shape in shapes.items()
        }

    def module_shapes(self) -> dict[str, tuple[int, int]]:
        """(out, in) of the linear modules of one layer, by their name within the layer."""
        hidden, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }

    def block_bytes(self, dtype: str) -> int:
        """Bytes of one block: K and V of BLOCK_SIZE tokens in every layer."""
        per_token = 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[dtype]
        return BLOCK_SIZE * per_token


def _no_windows(config: Json, layers: int) -> tuple[int | None, ...]:
    return (None,) * layers


def _mistral_windows(config: Json, layers: int) -> tuple[int | None, ...]:
    return (config.get("sliding_window", 4096),) * layers


def _qwen_windows(config: Json, layers: int) -> tuple[int | None, ...]:
    if not config.get("use_sliding_window", False):
        return (None,) * layers
    window = config.get("sliding_window", 4096)
    if kinds := config.get("layer_types"):
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = config.get("max_window_layers", 28)
    return tuple(window if layer >= first else None for layer in range(layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What tells one architecture from the others; `defaults` stand for keys absent from its config."""

    name: str
    defaults: Json
    biases: Callable[[Json], tuple[bool, bool, bool]]
    windows: Callable[[Json, int], tuple[int | None, ...]]
    qk_norm: bool = False


def _llama_biases(config: Json) -> tuple[bool, bool, bool]:
    attention = bool(config.get("attention_bias", False))
    return attention, attention, bool(config.get("mlp_bias", False))


def _qwen3_biases(config: Json) -> tuple[bool, bool, bool]:
    attention = bool(config.get("attention_bias", False))
    return attention, attention, False


FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(
        name="llama",
        defaults={"max_position_embeddings": 2048},
        biases=_llama_biases,
        windows=_no_windows,
    ),
    "MistralForCausalLM": Family(
        name="mistral",
        defaults={"max_position_embeddings": 131072, "num_key_value_heads": 8},
        biases=lambda _: (False, False, False),
        windows=_mistral_windows,
    ),
    "Qwen2ForCausalLM": Family(
        name="qwen2",
        defaults={"max_position_embeddings": 32768, "num_key_value_heads": 32},
        biases=lambda _: (True, False, False),
        windows=_qwen_windows,
    ),
    "Qwen3ForCausalLM": Family(
        name="qwen3",
        defaults={"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128},
        biases=_qwen3_biases,
        windows=_qwen_windows,
        qk_norm=True,
    ),
}


def read_spec(folder: Path) -> ModelSpec:
    """Read `folder`/config.json (and generation_config.json for the end tokens).

    Raises UnsupportedModel naming the key, the value met and the values allowed.
    """
    config = _read_json(folder / "config.json")
    family = _family(config)
    config = {**family.defaults, **config}
    _refuse_variants(config)
    layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
    qkv_bias, o_bias, mlp_bias = family.biases(config)
    return ModelSpec(
        family=family.name,
        hidden_size=int(config["hidden_size"]),
        intermediate_size=int(config["intermediate_size"]),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        vocab_size=int(config["vocab_size"]),
        max_position=int(config["max_position_embeddings"]),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        tie_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        mlp_bias=mlp_bias,
        qk_norm=family.qk_norm,
        windows=family.windows(config, layers),
        rope=_rope(config),
        bos_token_id=config.get("bos_token_id"),
        eos_token_ids=_eos_ids(folder, config),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnsupportedModel(f"{path} is missing; a folder in Hugging Face layout is needed") from None
    except ValueError as error:
        raise UnsupportedModel(f"{path} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise UnsupportedModel(f"{path} holds a {type(loaded).__name__}; an object is needed")
    return loaded


def _family(config: Json) -> Family:
    names = config.get("architectures") or ["(none named)"]
    family = FAMILIES.get(names[0])
    if family is None:
        raise UnsupportedModel(f"architecture {names[0]} is not supported; supported: {', '.join(FAMILIES)}")
    return family


def _refuse_variants(config: Json) -> None:
    required = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if missing := [key for key in required if config.get(key) is None]:
        raise UnsupportedModel(f"config.json lacks {', '.join(missing)}")
    if (act := config.get("hidden_act", "silu")) != "silu":
        raise UnsupportedModel(f"hidden_act {act} is not supported; supported: silu")
    if (quantization := config.get("quantization_config")) is not None:
        raise UnsupportedModel(f"quantization {quantization} is not supported; supported: plain tensors")


def _rope(config: Json) -> RopeSpec:
    """Accept both shapes: `rope_parameters` (new) and `rope_theta` beside `rope_scaling` (old)."""
    raw = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = str(raw.pop("rope_type", None) or raw.pop("type", None) or "default")
    raw.pop("type", None)
    if kind not in ROPE_TYPES:
        raise UnsupportedModel(f"rope_type {kind} is not supported; supported: {', '.join(ROPE_TYPES)}")
    partial = raw.pop("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise UnsupportedModel(f"partial_rotary_factor {partial} is not supported; supported: 1.0")
    theta = float(raw.pop("rope_theta", None) or config.get("rope_theta") or 10000.0)
    original = config.get("original_max_position_embeddings", config["max_position_embeddings"])
    raw.setdefault("original_max_position_embeddings", original)
    return RopeSpec(kind=kind, theta=theta, options=raw)


def _eos_ids(folder: Path, config: Json) -> tuple[int, ...]:
    path = folder / "generation_config.json"
    generation = _read_json(path) if path.exists() else {}
    ids = generation.get("eos_token_id", config.get("eos_token_id"))
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (int(ids),)
