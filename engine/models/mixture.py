"""Mixtral and Qwen3-MoE: the Llama family with a mixture of experts in place of each MLP."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.layer_modules import ExpertSpec
from engine.models.adapter_batch import AdapterBatch
from engine.models.checkpoint import Checkpoint
from engine.models.linear import Linear, make_linear
from engine.models.llama import build_with
from engine.models.mlp import ACTIVATIONS
from engine.models.stack import StackedDecoder
from engine.modelspec import ModelSpec


class Mixture:
    """Each token through the experts its router likes best; an expert sees all of its tokens at once.

    Adapters change nothing here: PEFT's linear modules end at the attention of these families.
    """

    def __init__(
        self, experts: ExpertSpec, activation: str, router: Tensor, pairs: list[tuple[Linear, Linear]]
    ) -> None:
        """router: [experts, hidden]. pairs: gate and up side by side, and down, of each expert."""
        self._per_token = experts.per_token
        self._normalize = experts.normalize
        self._activation = ACTIVATIONS[activation]
        self._router = router
        self._pairs = pairs

    def __call__(self, x: Tensor, adapters: AdapterBatch | None) -> Tensor:
        shares, chosen = self._route(x)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self._pairs)).tolist()
        out = torch.zeros_like(x)
        for (gate_up, down), own in zip(self._pairs, torch.split(order, counts), strict=True):
            if len(own):
                tokens = own // self._per_token
                gate, up = gate_up(x[tokens]).chunk(2, dim=-1)
                made = down(self._activation(gate) * up) * shares.flatten()[own, None]
                out.index_add_(0, tokens, made.to(x.dtype))
        return out

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Shares, float32, and numbers of each token's experts; both [T, per_token]."""
        likings = F.linear(x, self._router).to(torch.float32).softmax(-1)
        shares, chosen = likings.topk(self._per_token, dim=-1)
        return (shares / shares.sum(-1, keepdim=True) if self._normalize else shares), chosen


def build(spec: ModelSpec, weights: Checkpoint, dtype: torch.dtype) -> StackedDecoder:
    """Raises BadWeights."""
    return build_with(spec, weights, dtype, _mixture)


def _mixture(spec: ModelSpec, layer: int, weights: Checkpoint) -> Mixture:
    experts = spec.experts
    if experts is None:
        raise ValueError(f"family {spec.family} has no experts")
    at, hidden = f"{spec.layers_at}.{layer}.{experts.at}", spec.hidden_size

    def take(expert: int, module: str, shape: tuple[int, int]) -> Tensor:
        return weights.take(f"{at}.experts.{expert}.{module}.weight", shape)

    def pair(expert: int) -> tuple[Linear, Linear]:
        inward = [take(expert, module, (experts.width, hidden)) for module in (experts.gate, experts.up)]
        return make_linear(torch.cat(inward)), make_linear(
            take(expert, experts.down, (hidden, experts.width))
        )

    router = weights.take(f"{at}.gate.weight", (experts.count, hidden))
    return Mixture(experts, spec.activation, router, [pair(expert) for expert in range(experts.count)])
