"""What each family's config.json means: defaults of absent keys, renamed keys, values refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import UnsupportedModel
from engine.modelspec import ModelSpec, read_spec

SHAPE: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
}
GPT2_SHAPE: dict[str, Any] = {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4}


def spec_of(folder: Path, architecture: str, **changes: Any) -> ModelSpec:
    shape = GPT2_SHAPE if architecture.startswith("GPT2") else SHAPE
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **shape, **changes}))
    return read_spec(folder)


def test_gemma2_defaults(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "Gemma2ForCausalLM")
    assert spec.windows == (4096, None) * 3
    assert (spec.attention_softcap, spec.logit_softcap) == (50.0, 30.0)
    assert (spec.query_scale, spec.embedding_scale, spec.head_dim) == (256**-0.5, 8.0, 256)
    assert (spec.activation, spec.tie_embeddings, spec.qk_norm) == ("gelu_tanh", True, False)


def test_gemma3_of_old_and_new_configs_is_the_same(tmp_path: Path) -> None:
    old = spec_of(
        tmp_path,
        "Gemma3ForCausalLM",
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=6,
        sliding_window=512,
    )
    new = spec_of(
        tmp_path,
        "Gemma3ForCausalLM",
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        layer_types=["sliding_attention"] * 5 + ["full_attention"],
        sliding_window=512,
    )
    assert old == new
    assert new.windows == (512,) * 5 + (None,)
    assert new.local_rope is not None
    assert (new.rope.kind, new.rope.theta, new.local_rope.theta) == ("linear", 1e6, 1e4)
    bare = spec_of(tmp_path, "Gemma3ForCausalLM")
    assert (bare.rope.kind, bare.rope.theta) == ("default", 1e6)


def test_phi3_longrope_by_its_old_name(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
    scaling = {"type": "su", **factors}
    spec = spec_of(
        tmp_path,
        "Phi3ForCausalLM",
        max_position_embeddings=131072,
        rope_scaling=scaling,
        partial_rotary_factor=0.75,
    )
    assert (spec.rope.kind, spec.rope.partial, spec.rope.length) == ("longrope", 0.75, 131072)
    assert spec.rope.options["factor"] == 32.0
    assert spec.serving(4096).rope.length == 4096
    assert spec.serving(10**6) == spec


def test_gpt2_keys_have_the_usual_meaning(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "GPT2LMHeadModel", n_inner=None)
    assert (spec.hidden_size, spec.num_layers, spec.num_heads, spec.intermediate_size) == (64, 2, 4, 256)
    assert (spec.max_position, spec.rms_norm_eps, spec.eos_token_ids) == (1024, 1e-5, (50256,))
    assert spec.linear_modules["transformer.h.1.attn.c_attn"] == (192, 64)
    assert spec_of(tmp_path, "GPT2LMHeadModel", scale_attn_weights=False).query_scale == 1.0


def test_opt_and_mixtures(tmp_path: Path) -> None:
    opt = spec_of(tmp_path, "OPTForCausalLM", ffn_dim=80)
    assert (opt.intermediate_size, opt.max_position, opt.qkv_bias) == (80, 2048, True)
    mixtral = spec_of(tmp_path, "MixtralForCausalLM", num_attention_heads=8)
    assert mixtral.experts is not None
    assert (mixtral.experts.count, mixtral.experts.per_token, mixtral.experts.normalize) == (8, 2, True)
    assert (mixtral.rope.theta, mixtral.windows) == (1e6, (None,) * 6)
    qwen = spec_of(tmp_path, "Qwen3MoeForCausalLM")
    assert qwen.experts is not None
    assert (qwen.experts.count, qwen.experts.per_token, qwen.experts.normalize) == (128, 8, False)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("Gemma2ForCausalLM", {"hidden_activation": "relu"}, "hidden_act relu .*: gelu_pytorch_tanh"),
        ("Gemma2ForCausalLM", {"layer_types": ["chunked_attention"] * 6}, "layer_types 6 of chunked_att"),
        ("Gemma2ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types 1 of .* 6 of full_attention"),
        (
            "Gemma3ForCausalLM",
            {"use_bidirectional_attention": True},
            "bidirectional_attention True .*: False",
        ),
        ("Phi3ForCausalLM", {"rope_scaling": {"type": "yarn"}}, "rope_type yarn .*: default, longrope"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5 .* a part of 1"),
        (
            "Phi3ForCausalLM",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "longrope short_factor is of 1 numbers; this head needs 8 numbers",
        ),
        ("GPT2LMHeadModel", {"activation_function": "tanh"}, "hidden_act tanh .*: gelu_new"),
        ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx True .*: False"),
        ("GPT2LMHeadModel", {"add_cross_attention": True}, "add_cross_attention True"),
        ("OPTForCausalLM", {"word_embed_proj_dim": 32}, "word_embed_proj_dim 32 .*: hidden_size, 64"),
        ("OPTForCausalLM", {"do_layer_norm_before": False}, "do_layer_norm_before False .*: True"),
        ("OPTForCausalLM", {"layer_norm_elementwise_affine": False}, "elementwise_affine False"),
        ("OPTForCausalLM", {"_remove_final_layer_norm": True}, "_remove_final_layer_norm True"),
        ("MixtralForCausalLM", {"hidden_act": "gelu"}, "hidden_act gelu"),
        ("MixtralForCausalLM", {"num_experts_per_tok": 9}, "num_experts_per_tok 9 .* at most 8"),
        ("Qwen3MoeForCausalLM", {"decoder_sparse_step": 2}, "decoder_sparse_step 2 .*: 1"),
        ("Qwen3MoeForCausalLM", {"mlp_only_layers": [0]}, r"mlp_only_layers \[0\] .*: \[\]"),
    ],
)
def test_values_not_served_are_named(
    tmp_path: Path, architecture: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        spec_of(tmp_path, architecture, **changes)
