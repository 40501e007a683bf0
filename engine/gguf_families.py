"""Which GGUF architectures are imported: one row each, which tells its tensors' names and layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine import gguf_configs as configs
from engine.errors import UnsupportedModel
from engine.gguf_meta import GgufMeta

Names = Mapping[str, str]

_ENDS: Names = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_ATTENTION: Names = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
}
_DENSE: Names = {
    **_ATTENTION,
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA: Names = {
    **_DENSE,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FUSED: Names = {
    **_DENSE,
    "attn_qkv": "self_attn.qkv_proj",
    "ffn_up": "mlp.gate_up_proj",
}
_GPT2_ENDS: Names = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
_GPT2: Names = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFamily:
    """How a file's tensors are called and laid out.

    config: config.json of the file. ends, parts: Hugging Face modules by their GGUF names, of the model and
    of a layer. experts: modules of expert "{}", whose matrices GGUF stacks. paired: parts whose rotated
    pairs lie side by side. transposed: parts that Hugging Face keeps [in, out]. norm_shift: what GGUF adds
    to the weights of norms.
    """

    config: Callable[[GgufMeta], configs.Config]
    ends: Names = field(default_factory=lambda: _ENDS)
    layers_at: str = "model.layers"
    parts: Names = field(default_factory=lambda: _DENSE)
    experts: Names = field(default_factory=dict)
    paired: tuple[str, ...] = ()
    transposed: tuple[str, ...] = ()
    norm_shift: float = 0.0


def family_of(meta: GgufMeta) -> GgufFamily:
    """Raises UnsupportedModel naming the architecture and those there are."""
    if meta.architecture == "llama" and meta.get("expert_count", 0):
        return _MIXTRAL
    if (family := GGUF_FAMILIES.get(meta.architecture)) is None:
        known = ", ".join(GGUF_FAMILIES)
        raise UnsupportedModel(f"GGUF architecture {meta.architecture} is not supported; supported: {known}")
    return family


_MIXTRAL = GgufFamily(
    config=configs.mixtral,
    parts={**_ATTENTION, "ffn_gate_inp": "block_sparse_moe.gate"},
    experts={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    paired=("attn_q", "attn_k"),
)

GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    "llama": GgufFamily(config=configs.llama, paired=("attn_q", "attn_k")),
    "qwen2": GgufFamily(config=configs.qwen2),
    "qwen3": GgufFamily(config=configs.qwen3),
    "qwen3moe": GgufFamily(
        config=configs.qwen3_moe,
        parts={**_ATTENTION, "ffn_gate_inp": "mlp.gate"},
        experts={f"ffn_{part}_exps": f"mlp.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")},
    ),
    "gemma2": GgufFamily(config=configs.gemma2, parts=_GEMMA, norm_shift=1.0),
    "gemma3": GgufFamily(config=configs.gemma3, parts=_GEMMA, norm_shift=1.0),
    "phi3": GgufFamily(config=configs.phi3, parts=_FUSED),
    "gpt2": GgufFamily(
        config=configs.gpt2,
        ends=_GPT2_ENDS,
        layers_at="transformer.h",
        parts=_GPT2,
        transposed=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
    ),
}
"""`general.architecture` -> its row; a llama file with experts is a Mixtral."""
