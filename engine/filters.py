"""Which tokens min_p, top_k and top_p leave: masks over rows of temperature-scaled logits.

Each function takes logits [rows, vocab] and one value a row and returns bool [rows, vocab], True where
kept. The likeliest token is always kept, and tokens as likely as the last one kept are kept with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

_HEAD = 1024
"""Tokens sorted at first for top_p: a nucleus is seldom larger, and sorting a whole vocabulary is slow."""


def keep_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Tokens at least min_p times as likely as the likeliest."""
    return logits >= logits.amax(dim=-1, keepdim=True) + min_p.log()[:, None]


def keep_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """The top_k likeliest tokens."""
    last = top_k.to(torch.int64)[:, None] - 1
    best = logits.topk(int(last.max()) + 1, dim=-1).values
    return logits >= best.gather(1, last)


def keep_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """The fewest likeliest tokens whose probabilities sum to top_p or more."""
    probs = logits.softmax(dim=-1)
    head = min(_HEAD, probs.shape[-1])
    best = probs.topk(head, dim=-1).values
    least = _least_kept(best, top_p)
    if head < probs.shape[-1]:
        short = (best.sum(dim=-1) < top_p).nonzero().flatten()
        if len(short):
            whole = probs[short].sort(dim=-1, descending=True).values
            least[short] = _least_kept(whole, top_p[short])
    return probs >= least[:, None]


def _least_kept(descending: Tensor, top_p: Tensor) -> Tensor:
    """Probability of the last token before which less than top_p has been gathered."""
    before = descending.cumsum(dim=-1) - descending
    kept = (before < top_p[:, None]).sum(dim=-1, keepdim=True).clamp_(min=1)
    return descending.gather(1, kept - 1).squeeze(1)
