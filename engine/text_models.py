"""Texts to the hidden states of their tokens: encoders and decoders behind one call, nothing cached."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.attention.base import SeqSpan
from engine.attention.direct import DirectAttention
from engine.attention.scores import Scores
from engine.embeddingspec import EmbeddingSpec
from engine.encoderspec import EncoderSpec
from engine.models import load_decoder
from engine.models.adapter_batch import AdapterBatch
from engine.models.base import ForwardBatch
from engine.models.bert import encoder_groups, load_encoder
from engine.models.module_groups import ModuleGroup, all_groups
from engine.modelspec import ModelSpec

Texts = Sequence[Sequence[int]]


class TextModel(Protocol):
    """Texts of one pass -> hidden states of their tokens, one text after another, [T, hidden].

    groups: the linear modules that an adapter may give pairs.
    """

    groups: Sequence[ModuleGroup]

    def __call__(self, texts: Texts, adapters: AdapterBatch | None) -> Tensor: ...


def load_text_model(folder: Path, spec: EmbeddingSpec, dtype: torch.dtype) -> TextModel:
    """Read the weights of `folder`. Raises BadWeights."""
    if isinstance(spec.model, EncoderSpec):
        return _Encoder(folder, spec.model, dtype)
    return _Decoder(folder, spec.model.serving(spec.max_tokens), dtype)


class _Decoder:
    """States behind the last norm; each token sees those before it."""

    def __init__(self, folder: Path, spec: ModelSpec, dtype: torch.dtype) -> None:
        self.groups: Sequence[ModuleGroup] = all_groups(spec)
        self._decoder = load_decoder(folder, spec, dtype)
        self._attention = DirectAttention(spec.windows, Scores.of(spec), causal=True)

    def __call__(self, texts: Texts, adapters: AdapterBatch | None) -> Tensor:
        ids = _joined(texts)
        batch = ForwardBatch(
            token_ids=ids,
            positions=_positions(texts),
            rows=torch.arange(len(ids)),
            attention=self._attention.plan(_spans(texts)),
            adapters=adapters,
            adapters_at_rows=adapters,
        )
        return self._decoder.hidden(batch, self._attention)


class _Encoder:
    """States of the last layer; each token sees its whole text."""

    def __init__(self, folder: Path, spec: EncoderSpec, dtype: torch.dtype) -> None:
        self.groups: Sequence[ModuleGroup] = encoder_groups(spec)
        self._encoder = load_encoder(folder, spec, dtype)

    def __call__(self, texts: Texts, adapters: AdapterBatch | None) -> Tensor:
        plan = self._encoder.attention.plan(_spans(texts))
        return self._encoder.forward(_joined(texts), _positions(texts), plan, adapters)


def _joined(texts: Texts) -> Tensor:
    return torch.tensor(list(chain.from_iterable(texts)))


def _positions(texts: Texts) -> Tensor:
    return torch.cat([torch.arange(len(text)) for text in texts])


def _spans(texts: Texts) -> list[SeqSpan]:
    return [SeqSpan(0, len(text), ()) for text in texts]
