"""A base model with an adapter merged into its weights, in float32: another way to the same answers.

It is what the self-check compares an engine with. It costs a whole model in float32, so it is made in a
process of its own. Activated LoRA cannot be merged.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

from engine.adapter_weights import AdapterWeights
from engine.attention.base import SeqSpan
from engine.attention.direct import DirectAttention
from engine.attention.scores import Scores
from engine.models import DECODERS
from engine.models.base import ForwardBatch
from engine.models.checkpoint import Checkpoint
from engine.modelspec import ModelSpec
from lora.errors import UnsupportedFeature
from lora.targets import HEAD


class MergedModel:
    """Logits of whole texts."""

    def __init__(self, folder: Path, spec: ModelSpec, weights: AdapterWeights) -> None:
        """Raises BadWeights, or UnsupportedFeature for what cannot be merged."""
        if weights.invocation:
            raise UnsupportedFeature("merging of alora_invocation_tokens", weights.invocation)
        head = weights.affine.get(HEAD)
        self._shift = None if head is None else head.shift
        if self._shift is not None and spec.logit_softcap is not None:
            raise UnsupportedFeature("merging of a bias of a head with a soft cap", spec.logit_softcap)
        whole = _with_room(spec, weights)
        module = import_module(DECODERS[spec.family])
        with MergedCheckpoint(folder, spec, weights) as checkpoint:
            self._decoder = module.build(whole, checkpoint, torch.float32)
        self._attention = DirectAttention(spec.windows, Scores.of(spec), causal=True)

    @torch.inference_mode()
    def logits(self, text: Sequence[int], first: int) -> Tensor:
        """Float32 [positions, vocab] of the positions from `first` on."""
        batch = ForwardBatch(
            token_ids=torch.tensor(text),
            positions=torch.arange(len(text)),
            rows=torch.arange(first, len(text)),
            attention=self._attention.plan([SeqSpan(0, len(text), ())]),
            adapters=None,
            adapters_at_rows=None,
        )
        hidden = self._decoder.hidden(batch, self._attention)
        logits: Tensor = self._decoder.logits(hidden, None)
        return logits if self._shift is None else logits + self._shift


def _with_room(spec: ModelSpec, weights: AdapterWeights) -> ModelSpec:
    """The same model with a head of its own, and a bias wherever the adapter may bring one."""
    biased = spec.adapter_targets.biases.keys()
    if {name for name, affine in weights.affine.items() if affine.shift is not None} - biased - {HEAD}:
        spec = replace(spec, qkv_bias=True, o_bias=True, mlp_bias=True)
    return replace(spec, tie_embeddings=False)


class MergedCheckpoint(Checkpoint):
    """The base's tensors in float32 with what the adapter does to them."""

    def __init__(self, folder: Path, spec: ModelSpec, weights: AdapterWeights) -> None:
        super().__init__(folder, torch.float32, root=spec.layers_at.partition(".")[0])
        self._targets, self._weights = spec.adapter_targets, weights
        self._turned = spec.linear_modules.keys() if spec.transposed else ()

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """See Checkpoint; a bias that the base does not have is 0."""
        module, _, kind = name.rpartition(".")
        if module in self._targets.norms:
            return self._norm(name, module, kind, shape)
        if module == self._targets.embedding:
            return self._table(name, shape)
        if module not in self._targets.linear:
            return super().take(name, shape)
        if kind == "bias":
            return self._bias(name, module, shape)
        if module == HEAD:
            return self._changed(module, self._head(shape))
        if module in self._turned:
            return self._changed(module, super().take(name, shape).T).T
        return self._changed(module, super().take(name, shape))

    def _norm(self, name: str, module: str, kind: str, shape: tuple[int, ...]) -> Tensor:
        norm = self._weights.norms.get(module)
        given = None if norm is None else {"weight": norm.weight, "bias": norm.bias}[kind]
        return super().take(name, shape) if given is None else given.float()

    def _bias(self, name: str, module: str, shape: tuple[int, ...]) -> Tensor:
        bias = super().take(name, shape) if module in self._targets.biases else torch.zeros(shape)
        affine = self._weights.affine.get(module)
        if affine is None:
            return bias
        gained = bias if affine.gain is None else affine.gain * bias
        return gained if affine.shift is None else gained + affine.shift

    def _changed(self, module: str, weight: Tensor) -> Tensor:
        """gain * W + scale * B A; the gain is in B already."""
        affine, pair = self._weights.affine.get(module), self._weights.modules.get(module)
        if affine is not None and affine.gain is not None:
            weight = affine.gain[:, None] * weight
        if pair is not None:
            weight = weight + pair.scale * (pair.b.float() @ pair.a.float())
        return weight

    def _table(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if self._weights.table is not None:
            return self._weights.table.float()
        table, delta = super().take(name, shape), self._weights.embedding
        if delta is not None:
            gained = table if delta.gain is None else table * delta.gain
            table = gained + delta.scale * (delta.b.float() @ delta.a.float()).T
        return self._with_rows(table)

    def _head(self, shape: tuple[int, ...]) -> Tensor:
        if self._weights.head is not None:
            return self._weights.head.float()
        if not self._targets.tied:
            return super().take(f"{HEAD}.weight", shape)
        table = super().take(f"{self._targets.embedding}.weight", shape)
        tokens = self._weights.tokens
        return self._with_rows(table) if tokens is not None and tokens.in_head else table

    def _with_rows(self, table: Tensor) -> Tensor:
        tokens = self._weights.tokens
        return table if tokens is None else table.index_copy(0, tokens.ids, tokens.rows.float())
