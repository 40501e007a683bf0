"""Random adapters that change all but the layers' modules, and transformers' own model merged with one."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from engine.adapter_targets import HEAD, AdapterTargets
from engine.adapter_weights import (
    AdapterWeights,
    Affine,
    EmbeddingDelta,
    LoraPair,
    NormWeights,
    TokenRows,
)
from tests.unit.engine.conftest import TinyModel

EMBEDDING = ("embedding", "tokens", "norms")
HEADS = ("pair", "affine", "norms")
REPLACED = ("table", "head", "norms")
ALL_WAYS = (EMBEDDING, HEADS, REPLACED)


def drawn(targets: AdapterTargets, seed: int, parts: Collection[str], rank: int = 5) -> AdapterWeights:
    """Changes of about the base's own size. parts: names as in the tuples above."""
    torch.manual_seed(seed)
    vocab, hidden = targets.vocab, targets.hidden
    matrix = [torch.randn(vocab, hidden) * 0.3 for _ in range(2)]
    pair = LoraPair(torch.randn(rank, hidden) * 0.3, torch.randn(vocab, rank) * 0.3, 0.7)
    affine = Affine(1 + 0.3 * torch.randn(vocab), 0.3 * torch.randn(vocab))
    delta = EmbeddingDelta(
        torch.randn(rank, vocab) * 0.3, torch.randn(hidden, rank) * 0.3, 0.7, 1 + 0.3 * torch.randn(hidden)
    )
    ids = torch.randperm(vocab)[: vocab // 4].sort().values
    rows = TokenRows(ids, torch.randn(len(ids), hidden) * 0.3, in_head=targets.tied)
    norms = {name: _norm(targets, name) for name in targets.norms}
    return AdapterWeights(
        f"sha256:{seed}",
        {HEAD: pair} if "pair" in parts else {},
        affine={HEAD: affine} if "affine" in parts else {},
        norms=norms if "norms" in parts else {},
        embedding=delta if "embedding" in parts else None,
        table=matrix[0] if "table" in parts else None,
        head=matrix[1] if "head" in parts else None,
        tokens=rows if "tokens" in parts else None,
    )


def merged(model: TinyModel, targets: AdapterTargets, weights: AdapterWeights) -> Any:
    """A copy of transformers' own instance that is what the adapter makes of it."""
    made = copy.deepcopy(model.reference)
    base = made.get_submodule(targets.embedding).weight.detach().clone()
    table, head = base.clone(), made.lm_head.weight.detach().clone()
    if weights.table is not None:
        table = weights.table.clone()
    if weights.tokens is not None:
        table[weights.tokens.ids] = weights.tokens.rows
        if weights.tokens.in_head:
            head[weights.tokens.ids] = weights.tokens.rows
    if (delta := weights.embedding) is not None:
        gain = 1.0 if delta.gain is None else delta.gain
        table = gain * table + delta.scale * (delta.b @ delta.a).T
    made.get_submodule(targets.embedding).weight = nn.Parameter(table)
    made.lm_head = _head(head, weights)
    for name, norm in weights.norms.items():
        made.get_submodule(name).weight = nn.Parameter(norm.weight)
        if norm.bias is not None:
            made.get_submodule(name).bias = nn.Parameter(norm.bias)
    return made


def _head(matrix: Tensor, weights: AdapterWeights) -> nn.Linear:
    if weights.head is not None:
        matrix = weights.head
    affine, bias = weights.affine.get(HEAD), torch.zeros(len(matrix))
    if affine is not None and affine.gain is not None:
        matrix = affine.gain[:, None] * matrix
    if affine is not None and affine.shift is not None:
        bias = affine.shift
    if (pair := weights.modules.get(HEAD)) is not None:
        matrix = matrix + pair.scale * pair.b @ pair.a
    linear = nn.Linear(*reversed(matrix.shape))
    linear.weight, linear.bias = nn.Parameter(matrix), nn.Parameter(bias)
    return linear


def _norm(targets: AdapterTargets, name: str) -> NormWeights:
    size = targets.norms[name]
    bias = torch.randn(size) * 0.3 if name in targets.biases else None
    return NormWeights(1 + 0.3 * torch.randn(size), bias)
