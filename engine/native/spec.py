"""A ModelSpec as the struct that the library takes. Decides nothing; knows no family by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_float, c_int32

import torch

from engine.models.rope import Rope
from engine.modelspec import ModelSpec
from engine.native.library import Spec

ACTIVATIONS: Mapping[str, int] = {"silu": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3}
"""ModelSpec.activation -> noria_spec.activation."""


def library_spec(spec: ModelSpec, dtype: torch.dtype, **machine: int) -> Spec:
    """`spec` for weights of `dtype`, with the arrays it points to.

    machine: the fields that are not the model's: level, threads, num_blocks, int8_weights and int8_cache.
    """
    return Spec(
        float32=dtype is torch.float32,
        hidden=spec.hidden_size,
        layers=spec.num_layers,
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        vocab=spec.vocab_size,
        tied=spec.tie_embeddings,
        qkv_bias=spec.qkv_bias,
        o_bias=spec.o_bias,
        mlp_bias=spec.mlp_bias,
        qk_norm=spec.qk_norm,
        layer_norm=spec.norm == "layer",
        norms_after=bool(spec.names.after_attention),
        learned_places=spec.place_rows,
        first_place=spec.first_place,
        eps=spec.rms_norm_eps,
        norm_offset=1.0 if spec.norm == "offset_rms" else 0.0,
        # Rounded as the model was trained with it.
        embedding_scale=torch.tensor(spec.embedding_scale, dtype=dtype).item(),
        query_scale=spec.head_dim**-0.5 if spec.query_scale is None else spec.query_scale,
        score_softcap=spec.attention_softcap or 0.0,
        logit_softcap=spec.logit_softcap or 0.0,
        groups=len(spec.kv_groups.windows),
        windows=_ints([window or 0 for window in spec.windows]),
        places=_ints([number for place in spec.kv_groups.places for number in place]),
        **_mlp(spec),
        **_rotations(spec),
        **machine,
    )


def _mlp(spec: ModelSpec) -> dict[str, int]:
    facts = {
        "inner": spec.intermediate_size if spec.experts is None else spec.experts.width,
        "activation": ACTIVATIONS[spec.activation],
        "gated": "up" not in spec.groups,
    }
    if spec.experts is None:
        return facts
    chosen, normalize = spec.experts.per_token, spec.experts.normalize
    return {**facts, "experts": spec.experts.count, "experts_chosen": chosen, "shares_sum": normalize}


def _rotations(spec: ModelSpec) -> dict[str, object]:
    """The layers with a window rotate in the last of the model's ways."""
    found = [rope for rope in (spec.rope, spec.local_rope) if rope is not None and rope.kind != "none"]
    ropes = [Rope(rope, spec.head_dim) for rope in found]
    inverse = [angle for rope in ropes for angle in rope.inverse.to(torch.float32).tolist()]
    return {
        "turned": 2 * len(ropes[0].inverse) if ropes else 0,
        "rotations": len(ropes),
        "rotary": _floats(inverse),
        "rotary_scales": _floats([rope.scale for rope in ropes]),
        "rotation_of": _ints([len(ropes) - 1 if window and ropes else 0 for window in spec.windows]),
    }


def _ints(values: Sequence[int]) -> object:
    return (c_int32 * len(values))(*values)


def _floats(values: Sequence[float]) -> object:
    return (c_float * len(values))(*values)
