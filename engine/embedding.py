"""Texts to vectors by BERT-like encoders and by decoders, with an adapter or without.

A use of the models beside generation: it has no cache and no scheduler. Every vector is bitwise the same
whatever texts are computed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from engine.adapter_fit import AdapterFit
from engine.adapter_weights import AdapterWeights
from engine.config import Dtype
from engine.dtypes import DTYPES
from engine.embeddingspec import Pooling, read_embedding_spec
from engine.errors import EmbeddingFailed, InvalidParameter, PromptTooLong
from engine.pooling import pool
from engine.text_adapter import TextAdapter, prepare_text_adapter
from engine.text_models import Texts, load_text_model

PASS_TOKENS = 512
"""Tokens computed at once; a longer text goes alone."""


class Embedder:
    """A model folder as a function from token ids to vectors.

    Called from one thread at a time, but for prepare_adapter, which any thread may call at any time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dtype: Dtype = "float32",
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        max_tokens: int | None = None,
        max_rank: int = 64,
    ) -> None:
        """pooling, normalize, max_tokens: None for what the folder says, see read_embedding_spec.

        Raises UnsupportedModel, BadWeights or InvalidConfig.
        """
        spec = read_embedding_spec(folder, pooling=pooling, normalize=normalize, max_tokens=max_tokens)
        self.dim, self.vocab_size = spec.model.hidden_size, spec.model.vocab_size
        self.max_tokens = spec.max_tokens
        self._pooling, self._normalize = spec.pooling, spec.normalize
        self._targets, self._dtype, self._max_rank = spec.model.adapter_targets, DTYPES[dtype], max_rank
        self._model = load_text_model(folder, spec, self._dtype)
        # Below about four rows a thread float32 products take other kernels, which round otherwise.
        self._least_rows = max(32, 4 * torch.get_num_threads())

    def embed(
        self, texts: Texts, *, adapter: TextAdapter | None = None, dimensions: int | None = None
    ) -> Tensor:
        """One vector for each list of token ids, special tokens as the model wants them: float32 [n, dim].

        dimensions: only the first so many, as models trained for it allow (Matryoshka, arXiv 2205.13147).
        Raises what check() raises, and EmbeddingFailed for a vector that is not finite.
        """
        for text in texts:
            self.check(text, dimensions)
        found = [torch.empty(0, dimensions or self.dim)]
        for some in passes(texts, PASS_TOKENS):
            found += [self.shaped(vector, dimensions)[None] for vector in self.pooled(some, adapter)]
        return torch.cat(found)

    def check(self, text: Sequence[int], dimensions: int | None = None) -> None:
        """Raises PromptTooLong, or InvalidParameter for no token, an unknown one, or too many dimensions."""
        if not text:
            raise InvalidParameter("text", list(text), "at least one token")
        if len(text) > self.max_tokens:
            raise PromptTooLong(len(text), self.max_tokens)
        if wrong := [token for token in text if not 0 <= token < self.vocab_size]:
            raise InvalidParameter("token id", wrong[0], f"0 to {self.vocab_size - 1}")
        if dimensions is not None and not 1 <= dimensions <= self.dim:
            raise InvalidParameter("dimensions", dimensions, f"1 to {self.dim}")

    @torch.inference_mode()
    def pooled(self, texts: Texts, adapter: TextAdapter | None) -> list[Tensor]:
        """One pass: float32 [dim] of each checked text, before it is shaped."""
        filled = self._filled(texts, adapter)
        states = self._model(filled, None if adapter is None else adapter.over(filled))
        return pool(states, [len(text) for text in texts], self._pooling)

    @torch.inference_mode()
    def shaped(self, vector: Tensor, dimensions: int | None) -> Tensor:
        """A pooled vector cut to `dimensions`, then of length 1 where that is asked for.

        Raises EmbeddingFailed for one that is not finite.
        """
        vector = vector[:dimensions]
        if self._normalize:
            vector = vector / vector.norm().clamp(min=1e-12)
        if not torch.isfinite(vector).all():
            raise EmbeddingFailed
        return vector

    @torch.inference_mode()
    def prepare_adapter(self, weights: AdapterWeights) -> TextAdapter:
        """All checks and packing. Raises AdapterTooLarge or AdapterMismatch."""
        fit = AdapterFit(weights.digest, self._targets, self._dtype, self._max_rank)
        return prepare_text_adapter(weights, fit, self._model.groups)

    def _filled(self, texts: Texts, adapter: TextAdapter | None) -> Texts:
        """The texts, and behind them repetitions while the rows of a product would be too few."""
        held = [part for text in texts if (part := text if adapter is None else adapter.held(text))] or texts
        lacking = self._least_rows - sum(map(len, held))
        return [*texts, *[held[-1]] * max(0, -(-lacking // len(held[-1])))]


def passes(texts: Texts, tokens: int) -> Iterator[Texts]:
    """Neighbours together, up to so many tokens; a longer text goes alone."""
    first, taken = 0, 0
    for number, text in enumerate(texts):
        if number > first and taken + len(text) > tokens:
            yield texts[first:number]
            first, taken = number, 0
        taken += len(text)
    if first < len(texts):
        yield texts[first:]
