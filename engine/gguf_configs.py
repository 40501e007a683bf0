"""config.json of a GGUF file, family by family: metadata under Hugging Face's names and with its meaning."""

from __future__ import annotations

from typing import Any

from engine.errors import UnsupportedModel
from engine.gguf_meta import GgufMeta, decimal
from engine.gguf_rope import longrope, whole_head

Config = dict[str, Any]


def _decoder(meta: GgufMeta, name: str) -> Config:
    """What the families with RMS norms share; no rotation."""
    hidden, heads = meta.count("embedding_length"), meta.count("attention.head_count")
    head_dim = int(meta.get("attention.key_length", hidden // heads))
    meta.expect("attention.value_length", head_dim)
    meta.skip("vocab_size")
    return {
        "architectures": [f"{name}ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": meta.count("feed_forward_length"),
        "num_hidden_layers": meta.count("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.count("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": meta.count("context_length"),
        "rms_norm_eps": decimal(meta.need("attention.layer_norm_rms_epsilon")),
        **_vocabulary(meta),
    }


def _vocabulary(meta: GgufMeta) -> Config:
    if "token_embd.weight" not in meta.shapes:
        raise UnsupportedModel(f"{meta.source} lacks the tensor token_embd.weight")
    tokens = {key: meta.values.get(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos", "padding")}
    return {
        "tie_word_embeddings": "output.weight" not in meta.shapes,
        "vocab_size": meta.shapes["token_embd.weight"][0],
        "bos_token_id": tokens["bos"],
        "eos_token_id": tokens["eos"],
        "pad_token_id": tokens["padding"],
    }


def _rotated(meta: GgufMeta, name: str, model_type: str) -> Config:
    """Families with SiLU whose heads turn as a whole."""
    found = _decoder(meta, name)
    rope = whole_head(meta, found["head_dim"])
    return {**found, "model_type": model_type, "hidden_act": "silu", "rope_parameters": rope}


def llama(meta: GgufMeta) -> Config:
    meta.skip("expert_count", "expert_used_count", "tensor_data_layout")
    biases = {
        "attention_bias": "blk.0.attn_q.bias" in meta.shapes,
        "mlp_bias": "blk.0.ffn_down.bias" in meta.shapes,
    }
    return {**_rotated(meta, "Llama", "llama"), **biases}


def mixtral(meta: GgufMeta) -> Config:
    experts = {
        "num_local_experts": meta.count("expert_count"),
        "num_experts_per_tok": meta.count("expert_used_count"),
        "sliding_window": None,
    }
    return {**_rotated(meta, "Mixtral", "mixtral"), **experts}


def qwen2(meta: GgufMeta) -> Config:
    return _rotated(meta, "Qwen2", "qwen2")


def qwen3(meta: GgufMeta) -> Config:
    return {
        **_rotated(meta, "Qwen3", "qwen3"),
        "attention_bias": "blk.0.attn_q.bias" in meta.shapes,
    }


def qwen3_moe(meta: GgufMeta) -> Config:
    """The file does not say whether the shares of the chosen experts are made to sum to 1: they are."""
    meta.expect("expert_gating_func", 1)
    meta.expect("expert_weights_norm", True)
    return {
        **_rotated(meta, "Qwen3Moe", "qwen3_moe"),
        "attention_bias": "blk.0.attn_q.bias" in meta.shapes,
        "num_experts": meta.count("expert_count"),
        "num_experts_per_tok": meta.count("expert_used_count"),
        "moe_intermediate_size": meta.count("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _gemma(meta: GgufMeta, name: str, model_type: str, largest: int) -> Config:
    """largest: layers of the one size whose scores are scaled by hidden size and heads, not by head_dim."""
    found = _decoder(meta, name)
    layers, heads = found["num_hidden_layers"], found["num_attention_heads"]
    scale = found["hidden_size"] // heads if layers == largest else found["head_dim"]
    return {
        **found,
        "model_type": model_type,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scale,
        "sliding_window": meta.count("attention.sliding_window"),
    }


def gemma2(meta: GgufMeta) -> Config:
    found = _gemma(meta, "Gemma2", "gemma2", largest=46)
    return {
        **found,
        "rope_parameters": whole_head(meta, found["head_dim"]),
        "attn_logit_softcapping": meta.decimal("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": meta.decimal("final_logit_softcapping", 30.0),
    }


def gemma3(meta: GgufMeta) -> Config:
    found = _gemma(meta, "Gemma3", "gemma3_text", largest=62)
    pattern, layers = meta.count("attention.sliding_window_pattern", 6), range(found["num_hidden_layers"])
    local = {"rope_type": "default", "rope_theta": meta.decimal("rope.freq_base_swa", 10000.0)}
    cap = meta.get("final_logit_softcapping")
    return {
        **found,
        "layer_types": ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in layers],
        "rope_parameters": {
            "full_attention": whole_head(meta, found["head_dim"], theta=1e6),
            "sliding_attention": local,
        },
        "final_logit_softcapping": None if cap is None else meta.decimal("final_logit_softcapping", 0.0),
    }


def phi3(meta: GgufMeta) -> Config:
    found = _decoder(meta, "Phi3")
    original = meta.get("rope.scaling.original_context_length", found["max_position_embeddings"])
    return {
        **found,
        "model_type": "phi3",
        "hidden_act": "silu",
        "original_max_position_embeddings": int(original),
        "sliding_window": meta.get("attention.sliding_window") or None,
        "rope_parameters": longrope(meta, found["head_dim"]),
    }


def gpt2(meta: GgufMeta) -> Config:
    meta.skip("vocab_size")
    heads = meta.count("attention.head_count")
    meta.expect("attention.head_count_kv", heads)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_embd": meta.count("embedding_length"),
        "n_head": heads,
        "n_inner": meta.count("feed_forward_length"),
        "n_layer": meta.count("block_count"),
        "n_positions": meta.count("context_length"),
        "layer_norm_epsilon": decimal(meta.need("attention.layer_norm_epsilon")),
        **_vocabulary(meta),
    }
