"""Config keys of each family turned into facts of a ModelSpec; refuses what is not served. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine import tensor_names
from engine.errors import UnsupportedModel
from engine.layer_modules import ATTENTION_ONLY, FUSED, GPT2, OPT, ExpertSpec
from engine.ropespec import ROPE_TYPES, Json, RopeSpec, read_rope

Facts = dict[str, Any]
"""Fields of a ModelSpec by name."""

Windows = tuple[int | None, ...]


def renamed(config: Json, keys: Mapping[str, str]) -> dict[str, Any]:
    """`config` with the family's own keys also under the usual names."""
    return {**config, **{new: config[old] for old, new in keys.items() if config.get(old) is not None}}


def _biases(config: Json, mlp: bool = False) -> Facts:
    bias = bool(config.get("attention_bias", False))
    return {"qkv_bias": bias, "o_bias": bias, "mlp_bias": mlp and bool(config.get("mlp_bias", False))}


def llama(config: Json, layers: int) -> Facts:
    return _biases(config, mlp=True)


def mistral(config: Json, layers: int) -> Facts:
    return {"windows": (config.get("sliding_window", 4096),) * layers}


def qwen2(config: Json, layers: int) -> Facts:
    return {"qkv_bias": True, "windows": _qwen_windows(config, layers)}


def qwen3(config: Json, layers: int) -> Facts:
    return {**_biases(config), "qk_norm": True, "windows": _qwen_windows(config, layers)}


def _qwen_windows(config: Json, layers: int) -> Windows:
    if not config.get("use_sliding_window", False):
        return (None,) * layers
    window = config.get("sliding_window", 4096)
    if kinds := config.get("layer_types"):
        return _windows_of(kinds, window, layers)
    first = config.get("max_window_layers", 28)
    return tuple(window if layer >= first else None for layer in range(layers))


def _windows_of(kinds: Sequence[str], window: int, layers: int) -> Windows:
    unknown = set(kinds) - {"sliding_attention", "full_attention"}
    if unknown or len(kinds) != layers:
        met = f"{len(kinds)} of {', '.join(sorted(set(kinds)))}"
        allowed = f"{layers} of full_attention, sliding_attention"
        raise UnsupportedModel(f"layer_types {met} is not supported; supported: {allowed}")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _gemma(config: Json, layers: int, period: int) -> Facts:
    """Every `period`-th layer sees everything, the others a window."""
    kinds = config.get("layer_types") or [
        "sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(layers)
    ]
    return {
        **_biases(config),
        "windows": _windows_of(kinds, config["sliding_window"], layers),
        "names": tensor_names.GEMMA,
        "norm": "offset_rms",
        "activation": "gelu_tanh",
        "query_scale": float(config["query_pre_attn_scalar"]) ** -0.5,
        "attention_softcap": config.get("attn_logit_softcapping"),
        "logit_softcap": config.get("final_logit_softcapping"),
        "embedding_scale": float(config["hidden_size"]) ** 0.5,
    }


def gemma2(config: Json, layers: int) -> Facts:
    return _gemma(config, layers, period=2)


def gemma3(config: Json, layers: int) -> Facts:
    local = {"rope_theta": config.get("rope_local_base_freq") or 10000.0}
    given = (config.get("rope_parameters") or {}).get("sliding_attention") or local
    plain = {"max_position_embeddings": config["max_position_embeddings"], "rope_parameters": given}
    facts = _gemma(config, layers, int(config.get("sliding_window_pattern") or 6))
    return {**facts, "qk_norm": True, "local_rope": read_rope(plain, int(config["head_dim"]), ROPE_TYPES)}


def gemma3_rope(config: Json, head_dim: int) -> RopeSpec:
    given = config.get("rope_parameters") or {}
    whole = {**config, "rope_parameters": given.get("full_attention", given)}
    return read_rope({"rope_theta": 1e6, **whole}, head_dim, ROPE_TYPES)


def phi3(config: Json, layers: int) -> Facts:
    return {"groups": FUSED, "windows": (config.get("sliding_window"),) * layers}


def phi3_rope(config: Json, head_dim: int) -> RopeSpec:
    return read_rope(config, head_dim, ("default", "longrope"), allow_partial=True)


def gpt2_keys(config: Json) -> dict[str, Any]:
    """The usual keys; four inner units for each hidden one where the config names none."""
    usual = renamed(
        config,
        {
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
            "n_inner": "intermediate_size",
            "activation_function": "hidden_act",
            "layer_norm_epsilon": "rms_norm_eps",
        },
    )
    return {"intermediate_size": 4 * int(usual.get("hidden_size", 0)), **usual}


def gpt2(config: Json, layers: int) -> Facts:
    return {
        "layers_at": "transformer.h",
        "groups": GPT2,
        "names": tensor_names.GPT2,
        "norm": "layer",
        "transposed": True,
        "activation": "gelu" if config["hidden_act"] == "gelu" else "gelu_tanh",
        "query_scale": None if config.get("scale_attn_weights", True) else 1.0,
        **dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), True),
    }


def opt_keys(config: Json) -> dict[str, Any]:
    """The usual keys."""
    return renamed(config, {"ffn_dim": "intermediate_size", "activation_function": "hidden_act"})


def opt(config: Json, layers: int) -> Facts:
    hidden, projected = config["hidden_size"], config.get("word_embed_proj_dim")
    if projected not in (None, hidden):
        raise UnsupportedModel(
            f"word_embed_proj_dim {projected} is not supported; supported: hidden_size, {hidden}"
        )
    biases = dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias"), bool(config.get("enable_bias", True)))
    return {
        "layers_at": "model.decoder.layers",
        "groups": OPT,
        "names": tensor_names.OPT,
        "norm": "layer",
        "first_place": 2,  # the rows before it stand for padding
        "activation": "relu",
        **biases,
    }


def _check_experts(count: int, per_token: int) -> None:
    if not 1 <= per_token <= count:
        raise UnsupportedModel(
            f"num_experts_per_tok {per_token} is not supported; supported: at most {count}"
        )


def mixtral(config: Json, layers: int) -> Facts:
    count, per_token = int(config["num_local_experts"]), int(config["num_experts_per_tok"])
    _check_experts(count, per_token)
    experts = ExpertSpec(
        count=count,
        per_token=per_token,
        width=int(config["intermediate_size"]),
        normalize=True,
        at="block_sparse_moe",
        gate="w1",
        up="w3",
        down="w2",
    )
    windows = (config.get("sliding_window"),) * layers
    return {"groups": ATTENTION_ONLY, "experts": experts, "windows": windows}


def qwen3_moe(config: Json, layers: int) -> Facts:
    count, per_token = int(config["num_experts"]), int(config["num_experts_per_tok"])
    _check_experts(count, per_token)
    experts = ExpertSpec(
        count=count,
        per_token=per_token,
        width=int(config["moe_intermediate_size"]),
        normalize=bool(config.get("norm_topk_prob", False)),
        at="mlp",
        gate="gate_proj",
        up="up_proj",
        down="down_proj",
    )
    window = config.get("sliding_window", 4096) if config.get("use_sliding_window", False) else None
    facts = {"groups": ATTENTION_ONLY, "experts": experts, "windows": (window,) * layers}
    return {**_biases(config), **facts, "qk_norm": True}
