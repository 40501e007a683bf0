"""Families beyond the Llama one: how transformers names them, and configs small enough yet telling.

Soft caps are low enough to bend the scores, windows and original lengths shorter than the tests' texts.
"""

from __future__ import annotations

from typing import Any

GEMMA: dict[str, Any] = {"head_dim": 16, "sliding_window": 21, "query_pre_attn_scalar": 24}
FACTORS = {"short_factor": [1.0, 1.2], "long_factor": [1.5, 4.0]}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5, **FACTORS}

FAMILY_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": (
        "Gemma2",
        {
            **GEMMA,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
            "attn_implementation": "eager",
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            **GEMMA,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "phi3": ("Phi3", {"tie_word_embeddings": True, "sliding_window": 21}),
    "phi3-partial": ("Phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    "phi3-longrope": ("Phi3", {"original_max_position_embeddings": 32, "rope_parameters": LONGROPE}),
    "gpt2": ("GPT2", {"n_inner": 80, "num_key_value_heads": None}),
    "gpt2-unscaled": (
        "GPT2",
        {"n_inner": 80, "num_key_value_heads": None, "scale_attn_weights": False,
         "activation_function": "gelu"},
    ),
    "opt": ("OPT", {"ffn_dim": 80, "init_std": 0.3, "num_key_value_heads": None}),
    "opt-bare": ("OPT", {"ffn_dim": 80, "init_std": 0.3, "num_key_value_heads": None, "enable_bias": False}),
    # With larger weights rounding sends rows to other experts, and a comparison in bfloat16 says little.
    "mixtral": ("Mixtral", {"num_local_experts": 4, "initializer_range": 0.1}),
    "qwen3-moe": (
        "Qwen3Moe",
        {
            "head_dim": 16,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
        },
    ),
    "qwen3-moe-plain": (
        "Qwen3Moe",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "sliding_window": 21,
         "use_sliding_window": True, "initializer_range": 0.1},
    ),
}  # fmt: skip

CONFIGS = {"Gemma3": "Gemma3TextConfig"}
MODELS = {"GPT2": "GPT2LMHeadModel"}
"""Classes that are not <name>Config and <name>ForCausalLM."""
