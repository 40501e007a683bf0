"""The C interface of csrc/api.h for ctypes. Calls release the interpreter's lock; errors are theirs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum
from pathlib import Path

from engine.errors import NativeUnavailable
from engine.native.build import build
from engine.sampling import MAX_LOGPROBS


class Part(IntEnum):
    """Parts of a layer and of the model, as in api.h."""

    Q, K, V, O, GATE, UP, DOWN = range(7)  # noqa: E741  the usual name of the matrix
    ROUTER, HEAD, EMBEDDING, PLACES = range(7, 11)
    NORM_ATTENTION, NORM_AFTER_ATTENTION, NORM_MLP, NORM_AFTER_MLP = range(11, 15)
    NORM_Q, NORM_K, NORM_FINAL = range(15, 18)


class Group(IntEnum):
    """Products of a layer, and the head's; noria_group in api.h."""

    QKV, O, GATE_UP, DOWN, HEAD = range(5)  # noqa: E741


PLACES: Mapping[Part, tuple[Group, int]] = {
    Part.Q: (Group.QKV, 0),
    Part.K: (Group.QKV, 1),
    Part.V: (Group.QKV, 2),
    Part.O: (Group.O, 0),
    Part.GATE: (Group.GATE_UP, 0),
    Part.UP: (Group.GATE_UP, 1),
    Part.DOWN: (Group.DOWN, 0),
    Part.HEAD: (Group.HEAD, 0),
}
"""The product that makes a part, and the part's place in it."""

KINDS = ("embed", "qkv", "attention", "o", "gate-up", "down", "head")
"""Kinds of a step's work, in the order of noria_kind in api.h."""


class Spec(ctypes.Structure):
    """struct noria_spec."""

    _fields_ = (
        *((name, c_int32) for name in ("float32", "int8_weights", "int8_cache", "level", "threads")),
        *(
            (name, c_int32)
            for name in ("hidden", "inner", "layers", "heads", "kv_heads", "head_dim", "vocab")
        ),
        *((name, c_int32) for name in ("tied", "qkv_bias", "o_bias", "mlp_bias", "qk_norm")),
        *((name, c_int32) for name in ("layer_norm", "norms_after", "activation", "gated")),
        *((name, c_int32) for name in ("experts", "experts_chosen", "shares_sum")),
        *((name, c_int32) for name in ("learned_places", "first_place", "turned", "rotations")),
        *((name, c_int32) for name in ("groups", "num_blocks")),
        *((name, c_float) for name in ("eps", "norm_offset", "embedding_scale", "query_scale")),
        *((name, c_float) for name in ("score_softcap", "logit_softcap")),
        *((name, POINTER(c_float)) for name in ("rotary", "rotary_scales")),
        *((name, POINTER(c_int32)) for name in ("rotation_of", "windows", "places")),
    )


class Batch(ctypes.Structure):
    """struct noria_batch."""

    _fields_ = (
        ("sequences", c_int32),
        *((name, c_void_p) for name in ("token_ids", "starts", "counts", "blocks", "block_counts")),
        *((name, c_void_p) for name in ("slots", "samples", "logits", "best")),
        *((name, c_void_p) for name in ("score_firsts", "score_counts", "targets")),
        ("top", c_int32),
        *((name, c_void_p) for name in ("logprobs", "ranks", "top_ids", "top_logprobs")),
    )


class DrawRow(ctypes.Structure):
    """struct noria_draw."""

    _fields_ = (
        *((name, c_int32) for name in ("row", "token", "top_k", "top")),
        *((name, c_float) for name in ("temperature", "top_p", "least")),
        *((name, c_float) for name in ("repetition", "presence", "frequency")),
        ("uniform", c_double),
        ("allowed", c_char_p),
        *((name, c_void_p) for name in ("banned", "bias_ids", "biases", "history")),
        *((name, c_int32) for name in ("banned_count", "bias_count", "history_count", "prompt_count")),
        ("logprob", c_float),
        ("rank", c_int32),
        ("top_ids", c_int32 * MAX_LOGPROBS),
        ("top_logprobs", c_float * MAX_LOGPROBS),
    )


class Pairs(ctypes.Structure):
    """struct noria_pairs."""

    _fields_ = (("ranks", c_int32 * 3), ("a", c_void_p * 3), ("b", c_void_p * 3))


SIGNATURES = {
    "noria_level": (c_int32, ()),
    "noria_disagreement": (c_float, (c_int32,)),
    "noria_create": (c_void_p, (POINTER(Spec), c_char_p, c_int32)),
    "noria_destroy": (None, (c_void_p,)),
    "noria_put": (None, (c_void_p, c_int32, c_int32, c_void_p)),
    "noria_put_bias": (None, (c_void_p, c_int32, c_int32, c_void_p)),
    "noria_put_expert": (None, (c_void_p, c_int32, c_int32, c_int32, c_void_p)),
    "noria_step": (c_int32, (c_void_p, POINTER(Batch))),
    "noria_draw_tokens": (c_int32, (c_void_p, c_void_p, POINTER(DrawRow), c_int32)),
    "noria_watch": (None, (c_void_p, POINTER(c_int64))),
    "noria_copy": (None, (c_void_p, c_void_p, c_int32)),
    "noria_adapter_create": (c_void_p, (c_void_p,)),
    "noria_adapter_pairs": (c_int32, (c_void_p, c_int32, c_int32, POINTER(Pairs))),
    "noria_adapter_affine": (c_int32, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
    "noria_adapter_norm": (c_int32, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
    "noria_adapter_table": (c_int32, (c_void_p, c_void_p)),
    "noria_adapter_head": (c_int32, (c_void_p, c_void_p)),
    "noria_adapter_embedding": (c_int32, (c_void_p, c_int32, c_void_p, c_void_p, c_void_p)),
    "noria_adapter_tokens": (c_int32, (c_void_p, c_int32, c_void_p, c_void_p, c_int32)),
    "noria_adapter_bytes": (c_int64, (c_void_p,)),
    "noria_adapter_destroy": (None, (c_void_p,)),
    "noria_bind": (None, (c_void_p, c_int32, c_void_p)),
    "noria_unbind": (None, (c_void_p, c_int32)),
}
"""Functions by name: what they return and take."""


def open_library(cache: Path) -> ctypes.CDLL:
    """Build if need be, load, and check that this processor can run it. Raises NativeUnavailable."""
    library = ctypes.CDLL(str(build(cache)))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.noria_level() == 0:
        raise NativeUnavailable("the processor lacks AVX2 and FMA, which the kernels need")
    return library
