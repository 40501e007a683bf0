"""One LoRA adapter as the engine takes it: plain tensors by module, whatever file they came from.

All that PEFT can save is told here as what is done to the rows of one adapter in a batch of many: linear
modules get a low-rank delta and an affine change, norms and tables are replaced, the embedding gets a
delta, single tokens get rows of their own. Knows no files, no slots and no backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True)
class LoraPair:
    """Delta of one linear module: x -> scale * B A x. a: [r, in]. b: [out, r]. Source: arXiv 2106.09685."""

    a: Tensor
    b: Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class Affine:
    """What becomes of a linear module's output y, its bias included, before the delta is added.

    y -> gain * y + shift, both float32 [out], None for 1 and 0. A bias of the adapter's own is a shift. DoRA
    (arXiv 2402.09353) is a gain, the magnitude over the norm of each merged row, with the same gain in the
    rows of the pair's B, and (1 - gain) * bias as shift.
    """

    gain: Tensor | None = None
    shift: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NormWeights:
    """In place of a norm's weight, [n], as the checkpoint keeps it, and of its bias where it has one."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingDelta:
    """The row of token t becomes gain * row + scale * B A[:, t].

    a: [r, vocab]. b: [hidden, r]. gain: float32 [hidden], None for 1. Where a family scales its embeddings,
    the scale applies to what comes out.
    """

    a: Tensor
    b: Tensor
    scale: float
    gain: Tensor | None = None


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Rows of the embedding table for single tokens. ids: int64 [n], ascending. rows: [n, hidden].

    in_head: the head is the same table, so their logits come from these rows too.
    """

    ids: Tensor
    rows: Tensor
    in_head: bool


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """One adapter, by Hugging Face module name ("model.layers.0.self_attn.q_proj", "lm_head").

    modules and affine: of linear modules, the head among them; each may have either or both. norms: by name
    ("model.norm").
    table: in place of the whole embedding table [vocab, hidden], for the input alone. head: in place of the
    head's matrix, the same shape; nothing else changes "lm_head" then. invocation: tokens that switch the
    adapter on (activated LoRA, arXiv 2504.12397): positions before their last occurrence in the prompt see
    the base model, and so does a prompt without them. Empty: the adapter holds for every token.
    """

    digest: str
    modules: Mapping[str, LoraPair]
    affine: Mapping[str, Affine] = field(default_factory=dict)
    norms: Mapping[str, NormWeights] = field(default_factory=dict)
    embedding: EmbeddingDelta | None = None
    table: Tensor | None = None
    head: Tensor | None = None
    tokens: TokenRows | None = None
    invocation: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def _tensors(self) -> list[Tensor]:
        found = [self.table, self.head]
        for pair in self.modules.values():
            found += [pair.a, pair.b]
        for affine in self.affine.values():
            found += [affine.gain, affine.shift]
        for norm in self.norms.values():
            found += [norm.weight, norm.bias]
        if self.embedding is not None:
            found += [self.embedding.a, self.embedding.b, self.embedding.gain]
        if self.tokens is not None:
            found += [self.tokens.ids, self.tokens.rows]
        return [tensor for tensor in found if tensor is not None]
