"""What PEFT can put into an adapter, by its own settings: each feature on Llama, a rich set on any family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.modelspec import ModelSpec

Configs = Mapping[str, Mapping[str, Any]]

INVOCATION = [7, 11, 5]
TOKENS = [90, 3, 41, 64]
"""In no order, as users write them."""

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
PLAIN: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
HEAD: dict[str, Any] = {**PLAIN, "target_modules": ["o_proj", "lm_head"]}
TABLE: dict[str, Any] = {**PLAIN, "target_modules": ["v_proj", "embed_tokens"]}
TABLES: Configs = {
    "embedding": TABLE,
    "embedding with dora": {**TABLE, "use_dora": True},
    "head": HEAD,
    "head with dora": {**HEAD, "use_dora": True},
    "head with a bias": {**HEAD, "lora_bias": True},
    "both tables": {"target_modules": "(.*q_proj|.*embed_tokens|lm_head)", "use_rslora": True},
    "saved head": {**PLAIN, "modules_to_save": ["lm_head"]},
    "saved embedding": {**PLAIN, "modules_to_save": ["embed_tokens"]},
    "saved tables": {**PLAIN, "modules_to_save": ["embed_tokens", "lm_head"]},
    "tokens": {**PLAIN, "trainable_token_indices": TOKENS},
    "tokens by name": {**PLAIN, "trainable_token_indices": {"embed_tokens": TOKENS}},
    "tokens of both tables": {
        **PLAIN,
        "trainable_token_indices": {"embed_tokens": TOKENS, "lm_head": TOKENS[:2]},
    },
    "the same tokens of both tables": {
        **PLAIN,
        "trainable_token_indices": {"embed_tokens": TOKENS, "lm_head": TOKENS},
    },
    "tokens of the head": {**PLAIN, "trainable_token_indices": {"lm_head": TOKENS}},
    "tokens and a changed head": {**HEAD, "trainable_token_indices": TOKENS},
    "all at once": {
        "r": 3,
        "target_modules": ALL,
        "use_dora": True,
        "use_rslora": True,
        "trainable_token_indices": TOKENS,
        "modules_to_save": ["model.norm", "input_layernorm"],
    },
}
FEATURES: Mapping[str, Configs] = {
    "llama": {
        "plain": PLAIN,
        "rslora": {"r": 8, "lora_alpha": 8, "target_modules": ALL, "use_rslora": True},
        "patterns": {
            "r": 4,
            "target_modules": ALL,
            "rank_pattern": {"k_proj": 2, "layers.1.self_attn.q_proj": 16, r"^model.layers.0.mlp.up_proj": 5},
            "alpha_pattern": {"q_proj": 3, "mlp.*": 20},
        },
        "regex": {"target_modules": r".*\.layers\.[02]\.(self_attn|mlp)\.(q|up)_proj"},
        "all-linear": {"target_modules": "all-linear"},
        "excluded": {"target_modules": ALL, "exclude_modules": ["down_proj", "layers.1.self_attn.q_proj"]},
        "excluded by regex": {"target_modules": ALL, "exclude_modules": r".*layers\.(0|2)\.mlp.*"},
        "layers": {"target_modules": ALL, "layers_to_transform": [0, 2], "layers_pattern": "layers"},
        "one layer": {"target_modules": ALL, "layers_to_transform": 1},
        "rank 1": {"r": 1, "target_modules": ALL},
        "rank 64": {"r": 64, "target_modules": ALL},
        "dora": {**PLAIN, "target_modules": ALL, "use_dora": True},
        "lora_bias": {**PLAIN, "target_modules": ALL, "lora_bias": True},
        "mica": {**PLAIN, "init_lora_weights": "mica"},
        "saved norms": {**PLAIN, "modules_to_save": ["norm", "layers.1.input_layernorm"]},
        "saved modules alone": {
            "target_modules": "dummy-target-modules",
            "modules_to_save": ["lm_head", "model.norm"],
        },
        "activated": {**PLAIN, "target_modules": ALL, "alora_invocation_tokens": INVOCATION},
        **TABLES,
    },
    "llama-biased": {
        "bias all": {**PLAIN, "bias": "all"},
        "bias lora_only": {**PLAIN, "bias": "lora_only"},
        "lora_bias and bias": {**PLAIN, "lora_bias": True, "bias": "all"},
        "dora": {**PLAIN, "target_modules": ALL, "use_dora": True},
        "dora and bias": {**PLAIN, "use_dora": True, "bias": "all"},
    },
    "llama-tied": {
        **TABLES,
        "tied embedding": {**TABLE, "ensure_weight_tying": True},
        "tied head": {**HEAD, "ensure_weight_tying": True},
        "tied embedding with dora": {**TABLE, "ensure_weight_tying": True, "use_dora": True},
        "tied saved embedding": {**PLAIN, "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    },
}
"""By the tiny model they are made for."""


def rich_set(spec: ModelSpec) -> Configs:
    """Adapters that between them change all that a model of this family has."""
    linear = sorted({name.rpartition(".")[2] for name in spec.linear_modules})
    norms = [name for name in spec.adapter_targets.norms if not name.endswith("post_attention_layernorm")]
    table = spec.adapter_targets.embedding.rpartition(".")[2]
    attention = [name.rpartition(".")[2] for group in ("qkv", "o") for name in spec.groups[group]]
    common = {"lora_alpha": 8, "fan_in_fan_out": spec.transposed}
    return {
        "dora": {**common, "r": 8, "target_modules": [*linear, table], "use_dora": True},
        "head": {**common, "r": 64, "target_modules": [linear[-1], "lm_head"], "modules_to_save": [table]},
        "saved": {**common, "r": 4, "target_modules": linear, "modules_to_save": [*norms, "lm_head"]},
        "biases": {
            **common,
            "r": 1,
            "target_modules": linear[:1],
            "bias": "all",
            "lora_bias": True,
            "modules_to_save": norms[-1:],
        },
        "tokens": {**common, "r": 8, "target_modules": linear, "trainable_token_indices": TOKENS},
        "activated": {**common, "r": 8, "target_modules": attention, "alora_invocation_tokens": INVOCATION},
    }
