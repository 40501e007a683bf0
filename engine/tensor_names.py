"""What a checkpoint holds beside the linear modules of its layers, by family. Knows no tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorNames:
    """Names of modules; those of a layer's norms are the names within the layer.

    places: the table of learned positions, empty where positions rotate. after_attention, after_mlp: the
    norms of what these two make, empty where it joins the rows as it is.
    """

    embedding: str
    places: str = ""
    before_attention: str
    after_attention: str = ""
    before_mlp: str
    after_mlp: str = ""
    final_norm: str


LLAMA = TensorNames(
    embedding="model.embed_tokens",
    before_attention="input_layernorm",
    before_mlp="post_attention_layernorm",
    final_norm="model.norm",
)
GEMMA = TensorNames(
    embedding="model.embed_tokens",
    before_attention="input_layernorm",
    after_attention="post_attention_layernorm",
    before_mlp="pre_feedforward_layernorm",
    after_mlp="post_feedforward_layernorm",
    final_norm="model.norm",
)
GPT2 = TensorNames(
    embedding="transformer.wte",
    places="transformer.wpe",
    before_attention="ln_1",
    before_mlp="ln_2",
    final_norm="transformer.ln_f",
)
OPT = TensorNames(
    embedding="model.decoder.embed_tokens",
    places="model.decoder.embed_positions",
    before_attention="self_attn_layer_norm",
    before_mlp="final_layer_norm",
    final_norm="model.decoder.final_layer_norm",
)
