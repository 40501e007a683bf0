"""Which tokens min_p, top_k and top_p leave: masks over rows of temperature-scaled logits.

Each function takes logits float32 [rows, vocab] and returns bool [rows, vocab], True where
kept. The likeliest token is always kept, and tokens as likely as the last one kept are kept with it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_GROUP = 64
"""Values of which only the largest is looked at first: a bound that leaves few to select from."""
_UNLIKELY = 1e-5
"""A nucleus seldom reaches down to such tokens: for top_p the others are sorted, not a whole row."""

Floats = np.ndarray[tuple[int], np.dtype[np.float32]]


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Tokens at least min_p times as likely as the likeliest."""
    return logits >= logits.amax(dim=-1, keepdim=True) + torch.tensor(min_p).log()


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """The top_k likeliest tokens; top_k is less than vocab."""
    least = np.array([_kth_largest(row, top_k) for row in logits.numpy()], np.float32)
    return logits >= torch.from_numpy(least)[:, None]


def keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """The fewest likeliest tokens whose probabilities sum to top_p or more."""
    probs = logits.softmax(dim=-1)
    return probs >= torch.stack([_least_kept(row, torch.tensor(top_p)) for row in probs])[:, None]


def _kth_largest(row: Floats, k: int) -> np.float32:
    """The k-th of a row [vocab] in descending order."""
    row = row[row >= reached_by(row, k)]
    kth: np.float32 = np.partition(row, -k)[-k]
    return kth


def reached_by(row: Floats, k: int) -> np.float32:
    """A bound that the k largest of a row [vocab] reach, and few others; -inf where none is found fast."""
    largest = row[: len(row) // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
    if k > len(largest):
        return np.float32(-np.inf)
    # k values of the row at least are as large as the k-th largest of its groups.
    bound: np.float32 = np.partition(largest, -k)[-k]
    return bound


def _least_kept(probs: Tensor, top_p: Tensor) -> Tensor:
    """Probability of the last token of a row [vocab] before which less than top_p has been gathered."""
    likely = probs[probs > _UNLIKELY]
    if likely.sum() < top_p:
        likely = probs
    descending = torch.from_numpy(np.sort(likely.numpy())[::-1].copy())
    before = descending.cumsum(dim=0) - descending
    kept = int((before < top_p).sum())
    return descending[max(kept, 1) - 1]
