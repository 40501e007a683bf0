"""Texts to vectors: BERT-like encoders by the mean over their tokens, decoders by their last token.

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
from engine.errors import InvalidParameter, PromptTooLong
from engine.models import load_decoder
from engine.models.base import ForwardBatch
from engine.models.bert import ARCHITECTURE, load_encoder, read_encoder_spec
from engine.modelspec import read_json, read_spec

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_PASS_TOKENS = 2048
"""Tokens computed at once; a longer text goes alone."""

Texts = Sequence[Sequence[int]]


class Embedder:
    """A model folder as a function from token ids to vectors. Called from one thread at a time."""

    def __init__(self, folder: Path, *, dtype: Dtype = "float32", normalize: bool = True) -> None:
        """normalize: vectors of length 1. Raises UnsupportedModel or BadWeights."""
        encodes = ARCHITECTURE in read_json(folder / "config.json").get("architectures", [])
        self._pooled: _Pooled = (_MeanOfEncoder if encodes else _LastOfDecoder)(folder, _DTYPES[dtype])
        self._normalize = normalize

    @torch.inference_mode()
    def embed(self, texts: Texts) -> Tensor:
        """One vector for each list of token ids, special tokens as the model wants them: float32 [n, dim].

        Raises PromptTooLong, or InvalidParameter for an empty list or an id outside the vocabulary.
        """
        for text in texts:
            self._check(text)
        vectors = [self._pooled(some) for some in _passes(texts)]
        found = torch.cat([torch.empty(0, self._pooled.dim), *vectors])
        return F.normalize(found, dim=-1) if self._normalize else found

    def _check(self, text: Sequence[int]) -> None:
        if not text:
            raise InvalidParameter("text", list(text), "at least one token")
        if len(text) > self._pooled.max_tokens:
            raise PromptTooLong(len(text), self._pooled.max_tokens)
        if wrong := [token for token in text if not 0 <= token < self._pooled.vocab_size]:
            raise InvalidParameter("token id", wrong[0], f"0 to {self._pooled.vocab_size - 1}")


class _Pooled(Protocol):
    """Texts of one pass -> float32 [n, dim]."""

    dim: int
    max_tokens: int
    vocab_size: int

    def __call__(self, texts: Texts) -> Tensor: ...


class _LastOfDecoder:
    """The hidden state of the last token, behind the last norm."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        spec = read_spec(folder, headless=True)
        self.dim, self.max_tokens, self.vocab_size = spec.hidden_size, spec.max_position, spec.vocab_size
        self._decoder = load_decoder(folder, spec, dtype)
        self._attention = DirectAttention(spec.windows, Scores.of(spec), causal=True)

    def __call__(self, texts: Texts) -> Tensor:
        batch = ForwardBatch(
            token_ids=_joined(texts),
            positions=_positions(texts),
            rows=torch.tensor([len(text) for text in texts]).cumsum(0) - 1,
            attention=self._attention.plan(_spans(texts)),
            lora=None,
        )
        return self._decoder.hidden(batch, self._attention).to(torch.float32)


class _MeanOfEncoder:
    """The mean of the hidden states of all tokens."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        spec = read_encoder_spec(folder)
        self.dim, self.max_tokens, self.vocab_size = spec.hidden_size, spec.max_position, spec.vocab_size
        self._encoder = load_encoder(folder, spec, dtype)

    def __call__(self, texts: Texts) -> Tensor:
        plan = self._encoder.attention.plan(_spans(texts))
        states = self._encoder.forward(_joined(texts), _positions(texts), plan).to(torch.float32)
        parts = torch.split(states, [len(text) for text in texts])
        return torch.stack([part.mean(0) for part in parts])


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
