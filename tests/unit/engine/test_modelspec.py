"""What config.json means, with old keys and new, absent keys and unsupported values."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import UnsupportedModel
from engine.families import FAMILIES
from engine.layer_modules import ExpertSpec
from engine.models import DECODERS
from engine.modelspec import ATTENTION_COST, ModelSpec, read_spec

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "eos_token_id": 2,
}


def spec_of(folder: Path, **changes: Any) -> ModelSpec:
    config = {key: value for key, value in {**BASE, **changes}.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    return read_spec(folder)


def test_absent_keys_mean_the_family_s_defaults(tmp_path: Path) -> None:
    llama = spec_of(tmp_path)
    assert (llama.num_kv_heads, llama.head_dim, llama.max_position) == (4, 16, 2048)
    assert (llama.rms_norm_eps, llama.rope.theta, llama.rope.kind) == (1e-6, 10000.0, "default")
    assert (llama.tie_embeddings, llama.qkv_bias, llama.mlp_bias, llama.qk_norm) == (False,) * 4
    mistral = spec_of(tmp_path, architectures=["MistralForCausalLM"], num_attention_heads=32, hidden_size=128)
    assert (mistral.num_kv_heads, mistral.windows) == (8, (4096, 4096))
    qwen3 = spec_of(tmp_path, architectures=["Qwen3ForCausalLM"], num_attention_heads=32)
    assert (qwen3.head_dim, qwen3.qk_norm, qwen3.qkv_bias) == (128, True, False)
    assert spec_of(tmp_path, architectures=["Qwen2ForCausalLM"], num_attention_heads=32).qkv_bias


def test_windows_by_layer(tmp_path: Path) -> None:
    qwen = {"architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 4, "sliding_window": 8}
    assert spec_of(tmp_path, **qwen).windows == (None, None)
    assert spec_of(tmp_path, **qwen, use_sliding_window=True, max_window_layers=1).windows == (None, 8)
    kinds = ["sliding_attention", "full_attention"]
    assert spec_of(tmp_path, **qwen, use_sliding_window=True, layer_types=kinds).windows == (8, None)
    mistral = {"architectures": ["MistralForCausalLM"], "num_key_value_heads": 4}
    assert spec_of(tmp_path, **mistral, sliding_window=None).windows == (None, None)


def test_rope_of_old_and_new_configs_is_the_same(tmp_path: Path) -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    old = spec_of(tmp_path, rope_theta=5e5, rope_scaling={"rope_type": "llama3", **scaling})
    older = spec_of(tmp_path, rope_theta=5e5, rope_scaling={"type": "llama3", **scaling})
    new = spec_of(tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **scaling})
    assert old.rope == older.rope == new.rope
    assert new.rope.options["original_max_position_embeddings"] == 2048


def test_end_tokens(tmp_path: Path) -> None:
    assert spec_of(tmp_path).eos_token_ids == (2,)
    assert spec_of(tmp_path, eos_token_id="absent").eos_token_ids == ()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert spec_of(tmp_path).eos_token_ids == (7, 8)


def test_linear_modules_and_block_bytes(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, num_key_value_heads=2)
    targets = spec.linear_modules
    assert len(targets) == 14
    assert targets["model.layers.1.self_attn.k_proj"] == (32, 64)
    assert targets["model.layers.0.mlp.down_proj"] == (64, 96)
    assert spec.block_bytes("bfloat16") == 16 * 2 * 2 * 2 * 16 * 2
    assert spec.block_bytes("float32") == 2 * spec.block_bytes("bfloat16")
    assert spec.block_bytes("int8") == 16 * 2 * 2 * 2 * (16 + 4)


def test_attention_and_products_balance_at_a_context(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    products = sum(out * width for out, width in spec.linear_modules.values())
    pairs = 2 * spec.num_heads * spec.head_dim * spec.num_layers
    assert spec.attention_balance() == pytest.approx(products / (pairs * ATTENTION_COST))
    half = replace(spec, windows=(None, *[8] * (spec.num_layers - 1)))
    assert half.attention_balance() == pytest.approx(spec.num_layers * spec.attention_balance())
    assert replace(spec, windows=(8,) * spec.num_layers).attention_balance() == math.inf
    experts = ExpertSpec(
        count=8, per_token=2, width=100, normalize=True, at="mlp", gate="gate", up="up", down="down"
    )
    more = 3 * spec.hidden_size * 100 * 2 * spec.num_layers
    assert replace(spec, experts=experts).attention_balance() == pytest.approx(
        (products + more) / (pairs * ATTENTION_COST)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BloomForCausalLM"]}, "architecture BloomForCausalLM .* LlamaForCausalLM, Mist"),
        ({"architectures": "absent"}, "architecture \\(none named\\)"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported; supported: silu"),
        ({"quantization_config": {"bits": 4}}, "quantization .*bits.* supported: plain tensors"),
        ({"rope_scaling": {"rope_type": "proportional"}}, "rope_type proportional .* default, linear"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "longrope short_factor is None; .* needs 8 numbers"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"hidden_size": "absent", "vocab_size": "absent"}, "lacks hidden_size, vocab_size"),
    ],
)
def test_unsupported_values_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        spec_of(tmp_path, **changes)


@pytest.mark.parametrize(
    ("text", "message"), [(None, "is missing"), ("{", "is not JSON"), ("[]", "holds a list")]
)
def test_unreadable_config_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(UnsupportedModel, match=message):
        read_spec(tmp_path)


def test_every_family_has_a_decoder() -> None:
    assert {family.name for family in FAMILIES.values()} == set(DECODERS)


def test_no_torch_is_imported() -> None:
    code = "import sys, engine.modelspec; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
