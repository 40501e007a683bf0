"""Texts to vectors by BERT-like encoders and by decoders.

A use of the models beside serving: it has no cache, no scheduler and no adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.attention.base import SeqSpan
from engine.attention.direct import DirectAttention
from engine.attention.scores import Scores
from engine.config import Dtype
from engine.dtypes import DTYPES
from engine.errors import InvalidParameter, PromptTooLong
from engine.models import load_decoder
from engine.models.base import ForwardBatch
from engine.models.bert import load_encoder, read_encoder_spec
from engine.modelspec import is_encoder, read_spec
from engine.pooling import Pooling, pool, read_pooling

_PASS_TOKENS = 2048
"""Tokens computed at once; a longer text goes alone."""

Texts = Sequence[Sequence[int]]


class Embedder:
    """A model folder as a function from token ids to vectors. Called from one thread at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        dtype: Dtype = "float32",
        normalize: bool = True,
        pooling: Pooling | None = None,
    ) -> None:
        """normalize: vectors of length 1.

        pooling: None for what the folder asks for; without such a word, the mean over the tokens of an
        encoder and the last token of a decoder. Raises UnsupportedModel or BadWeights.
        """
        encodes = is_encoder(folder)
        self._pooling = pooling or read_pooling(folder, "mean" if encodes else "last")
        self._states: _States = (_Encoder if encodes else _Decoder)(folder, DTYPES[dtype])
        self._normalize = normalize

    @torch.inference_mode()
    def embed(self, texts: Texts) -> Tensor:
        """One vector for each list of token ids, special tokens as the model wants them: float32 [n, dim].

        Raises PromptTooLong, or InvalidParameter for an empty list or an id outside the vocabulary.
        """
        for text in texts:
            self._check(text)
        vectors = [
            pool(self._states(some), [len(text) for text in some], self._pooling) for some in _passes(texts)
        ]
        found = torch.cat([torch.empty(0, self._states.dim), *vectors])
        return F.normalize(found, dim=-1) if self._normalize else found

    def _check(self, text: Sequence[int]) -> None:
        if not text:
            raise InvalidParameter("text", list(text), "at least one token")
        if len(text) > self._states.max_tokens:
            raise PromptTooLong(len(text), self._states.max_tokens)
        if wrong := [token for token in text if not 0 <= token < self._states.vocab_size]:
            raise InvalidParameter("token id", wrong[0], f"0 to {self._states.vocab_size - 1}")


class _States(Protocol):
    """Texts of one pass -> hidden states of their tokens, one text after another, [T, dim]."""

    dim: int
    max_tokens: int
    vocab_size: int

    def __call__(self, texts: Texts) -> Tensor: ...


class _Decoder:
    """States behind the last norm; each token sees those before it."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        spec = read_spec(folder, headless=True)
        self.dim, self.max_tokens, self.vocab_size = spec.hidden_size, spec.max_position, spec.vocab_size
        self._decoder = load_decoder(folder, spec, dtype)
        self._attention = DirectAttention(spec.windows, Scores.of(spec), causal=True)

    def __call__(self, texts: Texts) -> Tensor:
        ids = _joined(texts)
        batch = ForwardBatch(
            token_ids=ids,
            positions=_positions(texts),
            rows=torch.arange(len(ids)),
            attention=self._attention.plan(_spans(texts)),
        )
        return self._decoder.hidden(batch, self._attention)


class _Encoder:
    """States of the last layer; each token sees its whole text."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        spec = read_encoder_spec(folder)
        self.dim, self.max_tokens, self.vocab_size = spec.hidden_size, spec.max_position, spec.vocab_size
        self._encoder = load_encoder(folder, spec, dtype)

    def __call__(self, texts: Texts) -> Tensor:
        plan = self._encoder.attention.plan(_spans(texts))
        return self._encoder.forward(_joined(texts), _positions(texts), plan)


def _passes(texts: Texts) -> Iterator[Texts]:
    """Neighbours together, up to _PASS_TOKENS."""
    first, tokens = 0, 0
    for number, text in enumerate(texts):
        if number > first and tokens + len(text) > _PASS_TOKENS:
            yield texts[first:number]
            first, tokens = number, 0
        tokens += len(text)
    if first < len(texts):
        yield texts[first:]


def _joined(texts: Texts) -> Tensor:
    return torch.tensor(list(chain.from_iterable(texts)))


def _positions(texts: Texts) -> Tensor:
    return torch.cat([torch.arange(len(text)) for text in texts])


def _spans(texts: Texts) -> list[SeqSpan]:
    return [SeqSpan(0, len(text), ()) for text in texts]
