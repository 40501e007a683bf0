"""What an adapter holds, checked against the model and brought to the backend's dtype.

Both backends take it from here, so that they refuse the same things in the same words. Knows no slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapter_targets import HEAD, AdapterTargets
from engine.adapter_weights import AdapterWeights, Affine, EmbeddingDelta, LoraPair, NormWeights, TokenRows
from engine.errors import AdapterMismatch, AdapterTooLarge


@dataclass(frozen=True, slots=True)
class AdapterFit:
    """The adapter `digest` for a model with these targets.

    All methods raise AdapterMismatch, and AdapterTooLarge where ranks are looked at.

    max_rank: of a pair, by the engine's settings.
    """

    digest: str
    targets: AdapterTargets
    dtype: torch.dtype
    max_rank: int

    def whole(self, weights: AdapterWeights) -> AdapterWeights:
        """All of it, with the scales within B."""
        self.check_combination(weights)
        embedding = weights.embedding and self.embedding(weights.embedding)
        return AdapterWeights(
            self.digest,
            {name: LoraPair(*self.pair(name, pair), 1.0) for name, pair in weights.modules.items()},
            affine={name: Affine(*self.affine(name, given)) for name, given in weights.affine.items()},
            norms={name: NormWeights(*self.norm(name, given)) for name, given in weights.norms.items()},
            embedding=embedding and EmbeddingDelta(embedding[0], embedding[1], 1.0, embedding[2]),
            table=None if weights.table is None else self.matrix("the token table", weights.table),
            head=None if weights.head is None else self.matrix("the head's matrix", weights.head),
            tokens=weights.tokens and TokenRows(*self.tokens(weights.tokens), weights.tokens.in_head),
            invocation=weights.invocation,
        )

    def check_combination(self, weights: AdapterWeights) -> None:
        """Refuse what contradicts itself: the head replaced, or its rows, and changed as well."""
        changed = HEAD in weights.modules or HEAD in weights.affine
        own_rows = weights.tokens is not None and weights.tokens.in_head
        if weights.head is not None and changed:
            raise self._error(f"{HEAD} is replaced and changed; one of both is allowed")
        if own_rows and not self.targets.tied:
            raise self._error(f"rows of tokens are meant for {HEAD} too, which has a matrix of its own")
        if own_rows and (changed or weights.head is not None):
            raise self._error(f"rows of tokens are meant for {HEAD} too, which is changed itself")

    def pair(self, name: str, pair: LoraPair) -> tuple[Tensor, Tensor]:
        """A [r, in] and scale * B [out, r] of linear module `name`."""
        out, width = self._linear(name)
        rank = self._checked_rank(name, pair.a)
        b = pair.b.to(torch.float32) * pair.scale
        return (
            self._fitted(f"A of {name}", pair.a, (rank, width), self.dtype),
            self._fitted(f"B of {name}", b, (out, rank), self.dtype),
        )

    def affine(self, name: str, affine: Affine) -> tuple[Tensor | None, Tensor | None]:
        """Gain and shift of linear module `name`, float32 [out]."""
        wanted = self._linear(name)[:1]
        return (
            self._optional(f"the gain of {name}", affine.gain, wanted),
            self._optional(f"the shift of {name}", affine.shift, wanted),
        )

    def norm(self, name: str, norm: NormWeights) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of norm `name`."""
        size = self.targets.norms.get(name)
        if size is None:
            raise self._error(f"replaces norm {name}, which the model does not have")
        if (norm.bias is None) is (name in self.targets.biases):
            has, gives = ("a", "none") if norm.bias is None else ("no", "one")
            raise self._error(f"norm {name} has {has} bias in the model; the adapter gives {gives}")
        weight = self._fitted(f"the weight of {name}", norm.weight, (size,), self.dtype)
        if norm.bias is None:
            return weight, None
        return weight, self._fitted(f"the bias of {name}", norm.bias, (size,), self.dtype)

    def matrix(self, label: str, matrix: Tensor) -> Tensor:
        """In place of the token table or the head's matrix: [vocab, hidden]."""
        return self._fitted(label, matrix, (self.targets.vocab, self.targets.hidden), self.dtype)

    def embedding(self, delta: EmbeddingDelta) -> tuple[Tensor, Tensor, Tensor | None]:
        """A [r, vocab], scale * B [hidden, r] and the float32 gain [hidden]."""
        name = self.targets.embedding
        rank = self._checked_rank(name, delta.a)
        a = self._fitted(f"A of {name}", delta.a, (rank, self.targets.vocab), self.dtype)
        b = delta.b.to(torch.float32) * delta.scale
        return (
            a,
            self._fitted(f"B of {name}", b, (self.targets.hidden, rank), self.dtype),
            self._optional(f"the gain of {name}", delta.gain, (self.targets.hidden,)),
        )

    def tokens(self, tokens: TokenRows) -> tuple[Tensor, Tensor]:
        """Ids, int64 [n], and rows [n, hidden]."""
        ids, vocab = tokens.ids, self.targets.vocab
        if ids.dim() != 1 or ids.dtype is not torch.int64 or len(ids) == 0:
            raise self._error(
                f"ids of tokens have shape {list(ids.shape)} and dtype {ids.dtype}; "
                "one dimension, at least one, and torch.int64 are needed"
            )
        if int(ids.min()) < 0 or int(ids.max()) >= vocab:
            met = f"{int(ids.min())} .. {int(ids.max())}"
            raise self._error(f"ids of tokens lie in {met}; the model has 0 .. {vocab - 1}")
        if bool((ids.diff() <= 0).any()):
            raise self._error("ids of tokens do not ascend")
        rows = self._fitted("rows of tokens", tokens.rows, (len(ids), self.targets.hidden), self.dtype)
        return ids, rows

    def _linear(self, name: str) -> tuple[int, int]:
        shape = self.targets.linear.get(name)
        if shape is None:
            raise self._error(f"changes module {name}, which the model does not have")
        return shape

    def _checked_rank(self, name: str, a: Tensor) -> int:
        rank = len(a)
        if rank == 0:
            raise self._error(f"A of {name} has rank 0; at least 1 is needed")
        if rank > self.max_rank:
            raise AdapterTooLarge(self.digest, rank, self.max_rank)
        return rank

    def _optional(self, label: str, tensor: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
        return None if tensor is None else self._fitted(label, tensor, shape, torch.float32)

    def _fitted(self, label: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if tuple(tensor.shape) != shape:
            raise self._error(f"{label} has shape {list(tensor.shape)}; the model needs {list(shape)}")
        fitted = tensor.to(dtype).contiguous()
        # As in Checkpoint: one pass at the memory's rate.
        if not all(map(torch.isfinite, fitted.aminmax())):
            raise self._error(f"{label} has values that are not finite as {dtype}")
        return fitted

    def _error(self, problem: str) -> AdapterMismatch:
        return AdapterMismatch(f"adapter {self.digest!r}: {problem}")
