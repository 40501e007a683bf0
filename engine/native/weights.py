"""A model folder into packed weights, tensor by tensor; each is freed before the next one is read."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import CDLL
from pathlib import Path

import torch
from torch import Tensor

from engine.models.checkpoint import Checkpoint
from engine.modelspec import ModelSpec
from engine.native.library import Part
from engine.tensor_names import TensorNames

GROUP_PARTS: Mapping[str, tuple[Part, ...]] = {
    "qkv": (Part.Q, Part.K, Part.V),
    "o": (Part.O,),
    "gate_up": (Part.GATE, Part.UP),
    "up": (Part.UP,),
    "down": (Part.DOWN,),
}
"""The outputs of a group of modules, in their order, whichever modules make them."""


class Packer:
    """Hands tensors to a model of the library, which copies them. Layer -1: of none."""

    def __init__(self, library: CDLL, handle: int) -> None:
        self._library = library
        self._handle = handle

    def put(self, layer: int, part: Part, tensor: Tensor) -> None:
        """A matrix [out, in], or the weights of a norm."""
        tensor = tensor.contiguous()
        self._library.noria_put(self._handle, layer, part, tensor.data_ptr())

    def put_bias(self, layer: int, part: Part, tensor: Tensor) -> None:
        """A bias [out]."""
        tensor = tensor.contiguous()
        self._library.noria_put_bias(self._handle, layer, part, tensor.data_ptr())

    def put_expert(self, layer: int, expert: int, part: Part, tensor: Tensor) -> None:
        """One of an expert's three matrices [out, in]."""
        tensor = tensor.contiguous()
        self._library.noria_put_expert(self._handle, layer, expert, part, tensor.data_ptr())


def module_parts(spec: ModelSpec) -> dict[str, dict[Part, int]]:
    """For each linear module of a layer the parts that its rows are, and how many each has, in order."""
    keys = spec.num_kv_heads * spec.head_dim
    rows = {Part.Q: spec.num_heads * spec.head_dim, Part.K: keys, Part.V: keys}
    rows |= dict.fromkeys((Part.GATE, Part.UP), spec.intermediate_size)
    rows |= dict.fromkeys((Part.O, Part.DOWN), spec.hidden_size)
    found = {}
    for group, modules in spec.groups.items():
        parts = GROUP_PARTS[group]
        shares = [parts] if len(modules) == 1 else [(part,) for part in parts]
        for module, share in zip(modules, shares, strict=True):
            found[module] = {part: rows[part] for part in share}
    return found


def layer_norms(names: TensorNames) -> dict[Part, str]:
    """The norms around a layer's attention and MLP that the family has, by their name in the layer."""
    norms = {
        Part.NORM_ATTENTION: names.before_attention,
        Part.NORM_AFTER_ATTENTION: names.after_attention,
        Part.NORM_MLP: names.before_mlp,
        Part.NORM_AFTER_MLP: names.after_mlp,
    }
    return {part: name for part, name in norms.items() if name}


def split_rows(tensor: Tensor, parts: Mapping[Part, int]) -> list[tuple[Part, Tensor]]:
    """The rows of a module's weight, bias or adapter, by part."""
    return list(zip(parts, torch.split(tensor, list(parts.values())), strict=True))


def load_weights(folder: Path, spec: ModelSpec, dtype: torch.dtype, to: Packer) -> None:
    """Hand every tensor of `folder` to `to`. Raises BadWeights."""
    with Checkpoint(folder, dtype, root=spec.layers_at.partition(".")[0]) as weights:
        names, vocab = spec.names, (spec.vocab_size, spec.hidden_size)
        embedding = weights.take(f"{names.embedding}.weight", vocab)
        to.put(-1, Part.HEAD if spec.tie_embeddings else Part.EMBEDDING, embedding)
        del embedding
        if names.places:
            table = (spec.place_rows, spec.hidden_size)
            to.put(-1, Part.PLACES, weights.take(f"{names.places}.weight", table))
        for layer in range(spec.num_layers):
            _load_layer(weights, spec, layer, to)
        _load_norm(weights, spec, -1, Part.NORM_FINAL, names.final_norm, to)
        if spec.tie_embeddings:
            weights.ignore("lm_head.weight")
        else:
            to.put(-1, Part.HEAD, weights.take("lm_head.weight", vocab))
        weights.expect_empty()


def _load_layer(weights: Checkpoint, spec: ModelSpec, layer: int, to: Packer) -> None:
    prefix, parts = f"{spec.layers_at}.{layer}", module_parts(spec)
    for part, name in layer_norms(spec.names).items():
        _load_norm(weights, spec, layer, part, f"{prefix}.{name}", to)
    for module, shape in spec.module_shapes().items():
        stored = weights.take(f"{prefix}.{module}.weight", shape[::-1] if spec.transposed else shape)
        for part, rows in split_rows(stored.T if spec.transposed else stored, parts[module]):
            to.put(layer, part, rows)
        if _has_bias(spec, *parts[module]):
            bias = weights.take(f"{prefix}.{module}.bias", shape[:1])
            for part, rows in split_rows(bias, parts[module]):
                to.put_bias(layer, part, rows)
    if spec.qk_norm:
        size = (spec.head_dim,)
        to.put(layer, Part.NORM_Q, weights.take(f"{prefix}.self_attn.q_norm.weight", size))
        to.put(layer, Part.NORM_K, weights.take(f"{prefix}.self_attn.k_norm.weight", size))
    _load_experts(weights, spec, layer, to)


def _load_norm(weights: Checkpoint, spec: ModelSpec, layer: int, part: Part, name: str, to: Packer) -> None:
    size = (spec.hidden_size,)
    to.put(layer, part, weights.take(f"{name}.weight", size))
    if spec.norm == "layer":
        to.put_bias(layer, part, weights.take(f"{name}.bias", size))


def _load_experts(weights: Checkpoint, spec: ModelSpec, layer: int, to: Packer) -> None:
    experts, hidden = spec.experts, spec.hidden_size
    if experts is None:
        return
    at = f"{spec.layers_at}.{layer}.{experts.at}"
    to.put(layer, Part.ROUTER, weights.take(f"{at}.gate.weight", (experts.count, hidden)))
    inward, outward = (experts.width, hidden), (hidden, experts.width)
    modules = {
        Part.GATE: (experts.gate, inward),
        Part.UP: (experts.up, inward),
        Part.DOWN: (experts.down, outward),
    }
    for expert in range(experts.count):
        for part, (module, shape) in modules.items():
            stored = weights.take(f"{at}.experts.{expert}.{module}.weight", shape)
            to.put_expert(layer, expert, part, stored)


def _has_bias(spec: ModelSpec, part: Part, *others: Part) -> bool:
    """Parts of one module have one bias."""
    if part in (Part.Q, Part.K, Part.V):
        return spec.qkv_bias
    return spec.o_bias if part is Part.O else spec.mlp_bias
