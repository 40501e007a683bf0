"""Which architectures the engine runs: one row each.

A row says what an absent key of config.json means (the defaults of the Hugging Face configuration
class), which values are served, and who turns the rest into facts. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine import family_facts as facts
from engine.errors import UnsupportedModel
from engine.ropespec import NO_ROPE, ROPE_TYPES, Json, RopeSpec, read_rope

_SILU: Mapping[str, tuple[object, ...]] = {"hidden_act": ("silu",)}
_GEMMA_ONLY: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("gelu_pytorch_tanh",),
    "use_bidirectional_attention": (False, None),
}
_GEMMA_DEFAULTS: Json = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}


def _rope(config: Json, head_dim: int) -> RopeSpec:
    return read_rope(config, head_dim, ROPE_TYPES)


def _no_rope(config: Json, head_dim: int) -> RopeSpec:
    return NO_ROPE


def _same(config: Json) -> Json:
    return config


def _gemma_keys(config: Json) -> Json:
    return facts.renamed(config, {"hidden_activation": "hidden_act"})


def _qwen3_moe_keys(config: Json) -> Json:
    return facts.renamed(config, {"num_local_experts": "num_experts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What tells one architecture from the others.

    defaults: stand for keys absent from its config. facts: fields of a ModelSpec. keys: brings the
    config's own keys under the usual names. only: the values served of a key that changes what is
    computed.
    """

    name: str
    defaults: Json
    facts: Callable[[Json, int], facts.Facts]
    keys: Callable[[Json], Json] = _same
    only: Mapping[str, tuple[object, ...]]
    rope: Callable[[Json, int], RopeSpec] = _rope

    def complete(self, config: Json) -> dict[str, Any]:
        """`config` under the usual keys and with defaults. Raises UnsupportedModel for a value not served."""
        whole = {**self.defaults, **self.keys(config)}
        for key, allowed in self.only.items():
            if (met := whole.get(key, allowed[0])) not in allowed:
                shown = ", ".join(str(value) for value in allowed if value is not None)
                raise UnsupportedModel(f"{key} {met} is not supported; supported: {shown}")
        return whole


FAMILIES: Mapping[str, Family] = {
    "LlamaForCausalLM": Family(
        name="llama",
        defaults={"max_position_embeddings": 2048},
        facts=facts.llama,
        only=_SILU,
    ),
    "MistralForCausalLM": Family(
        name="mistral",
        defaults={"max_position_embeddings": 131072, "num_key_value_heads": 8},
        facts=facts.mistral,
        only=_SILU,
    ),
    "Qwen2ForCausalLM": Family(
        name="qwen2",
        defaults={"max_position_embeddings": 32768, "num_key_value_heads": 32},
        facts=facts.qwen2,
        only=_SILU,
    ),
    "Qwen3ForCausalLM": Family(
        name="qwen3",
        defaults={"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128},
        facts=facts.qwen3,
        only=_SILU,
    ),
    "Gemma2ForCausalLM": Family(
        name="gemma2",
        defaults={
            **_GEMMA_DEFAULTS,
            "max_position_embeddings": 8192,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        facts=facts.gemma2,
        keys=_gemma_keys,
        only=_GEMMA_ONLY,
    ),
    "Gemma3ForCausalLM": Family(
        name="gemma3",
        defaults={**_GEMMA_DEFAULTS, "max_position_embeddings": 131072},
        facts=facts.gemma3,
        keys=_gemma_keys,
        only=_GEMMA_ONLY,
        rope=facts.gemma3_rope,
    ),
    "Phi3ForCausalLM": Family(
        name="phi3",
        defaults={
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "eos_token_id": 32000,
        },
        facts=facts.phi3,
        only=_SILU,
        rope=facts.phi3_rope,
    ),
    "GPT2LMHeadModel": Family(
        name="gpt2",
        defaults={
            "max_position_embeddings": 1024,
            "hidden_act": "gelu_new",
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "eos_token_id": 50256,
        },
        facts=facts.gpt2,
        keys=facts.gpt2_keys,
        only={
            "hidden_act": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
            "scale_attn_by_inverse_layer_idx": (False, None),
            "add_cross_attention": (False, None),
        },
        rope=_no_rope,
    ),
    "OPTForCausalLM": Family(
        name="opt",
        defaults={
            "max_position_embeddings": 2048,
            "hidden_act": "relu",
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "eos_token_id": 2,
        },
        facts=facts.opt,
        keys=facts.opt_keys,
        only={
            "hidden_act": ("relu",),
            "do_layer_norm_before": (True,),
            "_remove_final_layer_norm": (False,),
            "layer_norm_elementwise_affine": (True,),
        },
        rope=_no_rope,
    ),
    "MixtralForCausalLM": Family(
        name="mixtral",
        defaults={
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        facts=facts.mixtral,
        only=_SILU,
    ),
    "Qwen3MoeForCausalLM": Family(
        name="qwen3_moe",
        defaults={
            "max_position_embeddings": 32768,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "intermediate_size": 6144,
        },
        facts=facts.qwen3_moe,
        keys=_qwen3_moe_keys,
        only={**_SILU, "decoder_sparse_step": (1,), "mlp_only_layers": ([], None)},
    ),
}
