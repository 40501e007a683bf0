"""A GGUF file of each family, written as llama.cpp's converter does, becomes the model it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from engine.config import EngineConfig, blocks_for
from engine.errors import UnsupportedModel
from engine.importer import import_gguf
from engine.modelspec import read_spec
from engine.runner import build_runner
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import Row
from tests.unit.engine.gguf_files import llama3_frequencies, save_model, write_model

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
LONG = {"short_factor": [1.0, 1.2], "long_factor": [1.5, 4.0]}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 9}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "llama": ("Llama", {"rms_norm_eps": 1e-5, "rope_parameters": {"rope_theta": 1e5}}, {}, {}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True}, {}, {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "head_dim": 16}, {}, {}),
    "llama-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
        {},
    ),
    "llama-3": (
        "Llama",
        {"head_dim": 16, "rope_parameters": LLAMA3},
        {},
        {"extra": {"rope_freqs.weight": llama3_frequencies(5e5, 16, 32.0)}},
    ),
    "mistral": ("Mistral", {"sliding_window": None}, {}, {}),
    "mixtral": (
        "Mixtral",
        {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None},
        {"expert_count": 3, "expert_used_count": 2},
        {},
    ),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}, {}, {"pre": "qwen2"}),
    "qwen2-yarn": (
        "Qwen2",
        {"rope_parameters": YARN},
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16,
        },
        {"pre": "qwen2"},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}, {}, {"pre": "qwen2"}),
    "qwen3moe": (
        "Qwen3Moe",
        {"head_dim": 16, **MOE},
        {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 24},
        {"pre": "qwen2"},
    ),
    "gemma2": (
        "Gemma2",
        {
            **GEMMA,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
            "attn_implementation": "eager",
        },
        {
            "attention.sliding_window": 9,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
        {},
    ),
    "gemma3": (
        "Gemma3",
        {
            **GEMMA,
            "num_hidden_layers": 7,
            "layer_types": [*["sliding_attention"] * 5, "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        {
            "attention.sliding_window": 9,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        {},
    ),
    "phi3": ("Phi3", {"sliding_window": 9}, {"attention.sliding_window": 9}, {}),
    "phi3-partial": (
        "Phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        {},
        {},
    ),
    "phi3-longrope": (
        "Phi3",
        {
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5, **LONG,
            },
        },
        {"rope.scaling.original_context_length": 16},
        {
            "extra": {
                "rope_factors_short.weight": torch.tensor(LONG["short_factor"]),
                "rope_factors_long.weight": torch.tensor(LONG["long_factor"]),
            }
        },
    ),
    "gpt2": ("GPT2", {"n_inner": 64, "num_key_value_heads": None}, {}, {"pre": "gpt-2"}),
}  # fmt: skip
"""Class, its config, metadata beyond the usual, and what else differs in the file."""

IDS = torch.randint(3, 300, (40,), generator=torch.Generator().manual_seed(0)).tolist()


@pytest.mark.parametrize("case", CASES)
def test_logits_are_the_original_s(case: str, tmp_path: Path) -> None:
    """In the engine and in transformers."""
    name, config, keys, changes = CASES[case]
    model = save_model(name, tmp_path / "source", **config)
    file = write_model(tmp_path / "m.gguf", name, tmp_path / "source", keys=keys, **changes)
    folder = import_gguf(file, tmp_path / "imported", "float32")
    settings = {"attn_implementation": "eager"} if name == "Gemma2" else {}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, **settings).eval()
    with torch.no_grad():
        want = model(torch.tensor([IDS])).logits[0]
        torch.testing.assert_close(theirs(torch.tensor([IDS])).logits[0], want, **TOLERANCE)
    table = list(range(blocks_for(len(IDS)) * len(read_spec(folder).kv_groups.windows)))
    config = EngineConfig(model=folder, dtype="float32", num_blocks=len(table), backend="reference")
    got = build_runner(config).logits((Row(0, IDS, table).span(0, len(IDS)),))
    torch.testing.assert_close(got[0], want[-1], **TOLERANCE)
    tokenizer = Tokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("the 12 dogs")) == "the 12 dogs"


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantized_tensors_are_expanded(tmp_path: Path, kind: str) -> None:
    save_model("Llama", tmp_path / "source")
    qtype = gguf.GGMLQuantizationType[kind]
    kinds = dict.fromkeys(("blk.0.ffn_down.weight", "token_embd.weight"), qtype)
    file = write_model(tmp_path / "m.gguf", "Llama", tmp_path / "source", kinds=kinds)
    got = load_file(import_gguf(file, tmp_path / "out", "float32") / "model.safetensors")
    want = load_file(tmp_path / "source" / "model.safetensors")
    for name in ("model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight"):
        error = (got[name] - want[name]).abs().max() / want[name].abs().max()
        assert 0 < error < 0.15
    assert torch.equal(got["lm_head.weight"], want["lm_head.weight"])
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())


@pytest.mark.parametrize(("kind", "bytes_a_block", "scales"), [("Q4_K", 144, (0, 2)), ("Q6_K", 210, (208,))])
def test_k_quants_are_expanded(
    tmp_path: Path, kind: str, bytes_a_block: int, scales: tuple[int, ...]
) -> None:
    """Random bytes of the right size are such a tensor, once its scales are numbers."""
    save_model("Llama", tmp_path / "source", hidden_size=256, head_dim=8)
    qtype = gguf.GGMLQuantizationType[kind]
    raw = np.random.default_rng(0).integers(0, 256, (64, bytes_a_block), np.uint8)
    for at in scales:
        raw[:, at : at + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    file = write_model(
        tmp_path / "m.gguf", "Llama", tmp_path / "source", raw={"blk.0.ffn_up.weight": (raw, qtype)}
    )
    got = load_file(import_gguf(file, tmp_path / "out", "float32") / "model.safetensors")
    want = gguf.dequantize(raw, qtype)
    assert want.shape == (64, 256)
    assert np.array_equal(got["model.layers.0.mlp.up_proj.weight"].numpy(), want)


@pytest.mark.parametrize(
    ("name", "keys", "changes", "message"),
    [
        ("Llama", {"rope.scaling.type": "longrope"}, {}, "scaling longrope is not .*: none, linear, yarn"),
        ("Llama", {"rope.dimension_count": 4}, {}, "rope.dimension_count 4 is not supported; supported: 8"),
        ("Llama", {"attention.value_length": 4}, {}, "value_length 4 is not supported; supported: 8"),
        ("Llama", {"attention.head_count_kv": [2, 1]}, {}, r"head_count_kv differs between layers: \[2, 1\]"),
        ("Llama", {"logit_scale": 2.0}, {}, "metadata llama.logit_scale = 2.0 is not known"),
        ("Llama", {"attention.layer_norm_rms_epsilon": None}, {}, "lacks .*llama.attention.layer_norm_rms"),
        (
            "Llama",
            {},
            {"extra": {"rope_freqs.weight": torch.tensor([1.0, 2.0, 3.0, 4.0])}},
            r"rope_freqs.weight\[1\] is 2.0; Llama 3's scaling makes it 1",
        ),
        ("Llama", {}, {"extra": {"rope_freqs.weight": torch.ones(3)}}, "has 3 numbers; this head needs 4"),
        ("Llama", {}, {"extra": {"blk.0.ssm_a.weight": torch.ones(3)}}, "tensor blk.0.ssm_a.weight is"),
        ("Llama", {}, {"split": 3}, "one of 3 parts of a split file; merge them first"),
        ("Llama", {}, {"pre": "bloom"}, "pre-tokenizer bloom is not .*: gpt-2, smollm, llama-bpe"),
        ("Llama", {}, {"kinds": {"blk.0.ffn_up.weight": "TQ1_0"}}, "type TQ1_0 of .*ffn_up.* F32, F16, BF16"),
        ("Qwen2", {"rope.scaling.type": "yarn", "rope.scaling.attn_factor": 2.0}, {}, "attn_factor 2.0"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_and_leaves_nothing(
    tmp_path: Path, name: str, keys: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    wide = {"hidden_size": 256, "head_dim": 8} if "kinds" in changes else {}
    save_model(name, tmp_path / "source", **wide)
    if "kinds" in changes:
        changes = {"kinds": {k: gguf.GGMLQuantizationType[v] for k, v in changes["kinds"].items()}}
    file = write_model(tmp_path / "m.gguf", name, tmp_path / "source", keys=keys, **changes)
    with pytest.raises(UnsupportedModel, match=message):
        import_gguf(file, tmp_path / "models" / "out")
    assert not (tmp_path / "models").exists() or list((tmp_path / "models").iterdir()) == []
