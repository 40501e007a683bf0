"""Attention of whole sequences to themselves: nothing cached, nothing to continue. For embedding texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.base import AttentionBackend, SeqSpan
from engine.attention.scores import Scores


class DirectAttention(AttentionBackend):
    """Sequences side by side in one batch, each seeing only itself."""

    def __init__(self, windows: Sequence[int | None], scores: Scores, *, causal: bool) -> None:
        """windows: of each layer. causal: a token sees those up to itself; otherwise all of its sequence."""
        self._windows = windows
        self._scores = scores
        self._causal = causal

    def plan(self, spans: Sequence[SeqSpan]) -> tuple[slice, ...]:
        """Rows of each sequence; `spans` hold whole sequences, their block tables are not looked at."""
        rows, first = [], 0
        for span in spans:
            rows.append(slice(first, first + span.count))
            first += span.count
        return tuple(rows)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: tuple[slice, ...]) -> Tensor:
        """See AttentionBackend."""
        out = torch.empty_like(q)
        for rows in plan:
            out[rows] = self._seen(q[rows], k[rows], v[rows], self._windows[layer])
        return out

    def _seen(self, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        if not self._causal:
            return self._scores.masked(q, k, v, None)
        if window is None or window >= len(q):
            return self._scores.causal(q, k, v)
        ahead = torch.arange(len(q))[:, None] - torch.arange(len(q))
        return self._scores.masked(q, k, v, (ahead >= 0) & (ahead < window))
