"""What of a base model an adapter may change: names of Hugging Face modules, and their sizes.

An adapter's tensors are matched with it before a backend sees them. Knows no tensors and imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.modelspec import ModelSpec

HEAD = "lm_head"
"""The module that makes logits, called so in every family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTargets:
    """Everything an adapter may name.

    linear: linear modules of the layers, experts apart, and the head, which encoders lack -> (out, in).
    biases: linear modules and norms whose checkpoint has a bias -> its size. norms: those over the whole
    hidden state, not the ones on single attention heads -> size. embedding: the token table,
    [vocab, hidden]. tied: the head's matrix is that table.
    """

    linear: Mapping[str, tuple[int, int]]
    biases: Mapping[str, int]
    norms: Mapping[str, int]
    embedding: str
    vocab: int
    hidden: int
    tied: bool


def targets_of(spec: ModelSpec) -> AdapterTargets:
    """The targets of one model."""
    linear = spec.linear_modules
    norms = dict.fromkeys(_norms(spec), spec.hidden_size)
    biased = _biased_modules(spec)
    biases = {name: out for name, (out, _) in linear.items() if name in biased}
    return AdapterTargets(
        linear={**linear, HEAD: (spec.vocab_size, spec.hidden_size)},
        biases=biases | norms if spec.norm == "layer" else biases,
        norms=norms,
        embedding=spec.names.embedding,
        vocab=spec.vocab_size,
        hidden=spec.hidden_size,
        tied=spec.tie_embeddings,
    )


def _norms(spec: ModelSpec) -> list[str]:
    names = spec.names
    of_layer = (names.before_attention, names.after_attention, names.before_mlp, names.after_mlp)
    layers = [f"{spec.layers_at}.{layer}" for layer in range(spec.num_layers)]
    return [*(f"{layer}.{name}" for layer in layers for name in of_layer if name), names.final_norm]


def _biased_modules(spec: ModelSpec) -> set[str]:
    biased = {
        module
        for group, modules in spec.groups.items()
        for module in modules
        if {"qkv": spec.qkv_bias, "o": spec.o_bias}.get(group, spec.mlp_bias)
    }
    return {f"{spec.layers_at}.{layer}.{module}" for layer in range(spec.num_layers) for module in biased}
