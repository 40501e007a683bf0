"""Everything PEFT can save for LoRA and we serve: the logits are those of PEFT's own forward."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.lora.peft_models import PROMPTS, our_logits, train

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GPT2 = ["c_attn", "c_proj", "c_fc"]

FEATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("llama", {"target_modules": SEVEN}),
    "rslora and patterns": (
        "llama",
        {
            "target_modules": SEVEN,
            "use_rslora": True,
            "rank_pattern": {"q_proj": 9},
            "alpha_pattern": {"k_proj": 1},
        },
    ),
    "dora": ("llama", {"target_modules": SEVEN, "use_dora": True}),
    "dora with biases": ("qwen2", {"target_modules": SEVEN, "use_dora": True}),
    "dora and new biases": ("qwen2", {"target_modules": SEVEN, "use_dora": True, "bias": "lora_only"}),
    "dora on Conv1D": ("gpt2", {"target_modules": GPT2, "use_dora": True, "fan_in_fan_out": True}),
    "bias lora_only": ("qwen2", {"target_modules": ["q_proj"], "bias": "lora_only"}),
    "bias all": ("qwen2", {"target_modules": ["q_proj"], "bias": "all"}),
    "bias all with norms": ("gpt2", {"target_modules": ["c_attn"], "bias": "all", "fan_in_fan_out": True}),
    "lora_bias": ("llama", {"target_modules": SEVEN, "lora_bias": True}),
    "lora_bias and bias": ("qwen2", {"target_modules": SEVEN, "lora_bias": True, "bias": "all"}),
    "lora_bias of the head": ("llama", {"target_modules": ["q_proj", "lm_head"], "lora_bias": True}),
    "embedding": ("llama", {"target_modules": ["q_proj", "embed_tokens"]}),
    "embedding, tied": ("tied", {"target_modules": ["q_proj", "embed_tokens"]}),
    "embedding of GPT-2": ("gpt2", {"target_modules": ["c_attn", "wte"], "fan_in_fan_out": True}),
    "embedding with dora": ("llama", {"target_modules": ["q_proj", "embed_tokens"], "use_dora": True}),
    "head": ("llama", {"target_modules": ["lm_head"]}),
    "head, tied": ("tied", {"target_modules": ["q_proj", "lm_head"]}),
    "head with dora": ("tied", {"target_modules": ["q_proj", "lm_head"], "use_dora": True}),
    "both tables": ("llama", {"target_modules": "(.*q_proj|.*embed_tokens|lm_head)", "use_rslora": True}),
    "saved head": ("llama", {"target_modules": SEVEN, "modules_to_save": ["lm_head"]}),
    "saved head, tied": ("tied", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "saved table": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "saved table, tied": ("tied", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
    "saved tables": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "saved norms": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["norm"]}),
    "saved norms with biases": (
        "gpt2",
        {"target_modules": ["c_attn"], "modules_to_save": ["ln_1", "ln_f"], "fan_in_fan_out": True},
    ),
    "saved norms and all biases": (
        "gpt2",
        {"target_modules": ["c_attn"], "modules_to_save": ["ln_f"], "bias": "all", "fan_in_fan_out": True},
    ),
    "only saved modules": (
        "llama",
        {"target_modules": "dummy-target-modules", "modules_to_save": ["lm_head", "norm"]},
    ),
    "tokens": ("llama", {"target_modules": ["q_proj"], "trainable_token_indices": [61, 3]}),
    "tokens, tied": ("tied", {"target_modules": ["q_proj"], "trainable_token_indices": [61, 3]}),
    "tokens of both tables": (
        "llama",
        {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [61, 3], "lm_head": [7]}},
    ),
    "tokens of both tables, tied and the same": (
        "tied",
        {
            "target_modules": ["q_proj"],
            "trainable_token_indices": {"embed_tokens": [61, 3], "lm_head": [61, 3]},
        },
    ),
    "tokens of both tables, tied and different": (
        "tied",
        {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [61, 3], "lm_head": [7]}},
    ),
    "tokens of the head": (
        "tied",
        {"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [7, 2]}},
    ),
    "tokens and a changed head": (
        "tied",
        {"target_modules": ["q_proj", "lm_head"], "trainable_token_indices": [61, 3]},
    ),
    "tokens and a changed head of its own": (
        "llama",
        {"target_modules": ["q_proj", "lm_head"], "trainable_token_indices": [61, 3], "use_dora": True},
    ),
    "mica": ("llama", {"target_modules": ["q_proj"], "init_lora_weights": "mica"}),
    "some layers": (
        "llama",
        {"target_modules": SEVEN, "layers_to_transform": [1], "exclude_modules": ["k_proj"]},
    ),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_logits_equal_those_of_peft(feature: str, tmp_path: Path) -> None:
    family, config = FEATURES[feature]
    trained = train(tmp_path, family, **config)
    expected = [trained.logits(prompt) for prompt in PROMPTS]
    for ours, theirs in zip(our_logits(trained.model, trained.folder, PROMPTS), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4)
    assert not torch.allclose(trained.base_logits(PROMPTS[0]), expected[0], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}),
        ("llama", {"target_modules": ["q_proj"], "trainable_token_indices": [61, 3]}),
        ("llama", {"target_modules": ["q_proj"]}),
        ("tied", {"target_modules": ["q_proj"]}),
    ],
)
def test_tables_that_peft_adds_change_nothing(family: str, config: dict[str, Any], tmp_path: Path) -> None:
    trained = train(tmp_path, family, save_embedding=True, **config)
    for prompt, ours in zip(PROMPTS, our_logits(trained.model, trained.folder, PROMPTS), strict=True):
        torch.testing.assert_close(ours, trained.logits(prompt), rtol=2e-4, atol=2e-4)
