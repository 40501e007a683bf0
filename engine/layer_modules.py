"""The linear modules of one layer by family: their names in a checkpoint, and what reads the same input.

Knows no layer numbers and no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Groups = Mapping[str, tuple[str, ...]]
"""Group -> modules. Those of a group read the same input; decoders keep their outputs side by side."""

LLAMA: Groups = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
FUSED: Groups = {**LLAMA, "qkv": ("self_attn.qkv_proj",), "gate_up": ("mlp.gate_up_proj",)}
ATTENTION_ONLY: Groups = {group: LLAMA[group] for group in ("qkv", "o")}
GPT2: Groups = {"qkv": ("attn.c_attn",), "o": ("attn.c_proj",), "up": ("mlp.c_fc",), "down": ("mlp.c_proj",)}
OPT: Groups = {"qkv": LLAMA["qkv"], "o": ("self_attn.out_proj",), "up": ("fc1",), "down": ("fc2",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSpec:
    """A layer's experts: each token goes to `per_token` of `count`, weighted by the router's softmax.

    normalize: the weights of the chosen sum to 1. at: their module in a layer. gate, up, down: modules of
    one expert, which has `width` inner units.
    """

    count: int
    per_token: int
    width: int
    normalize: bool
    at: str
    gate: str
    up: str
    down: str


def module_shapes(
    groups: Groups, *, hidden: int, inner: int, queries: int, keys: int
) -> dict[str, tuple[int, int]]:
    """(out, in) of the modules of `groups`; queries and keys: heads times head_dim of each."""
    known = {
        **dict.fromkeys(("self_attn.q_proj",), (queries, hidden)),
        **dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (keys, hidden)),
        **dict.fromkeys(("self_attn.qkv_proj", "attn.c_attn"), (queries + 2 * keys, hidden)),
        **dict.fromkeys(("self_attn.o_proj", "self_attn.out_proj", "attn.c_proj"), (hidden, queries)),
        **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj", "mlp.c_fc", "fc1"), (inner, hidden)),
        **dict.fromkeys(("mlp.gate_up_proj",), (2 * inner, hidden)),
        **dict.fromkeys(("mlp.down_proj", "mlp.c_proj", "fc2"), (hidden, inner)),
    }
    return {module: known[module] for modules in groups.values() for module in modules}
