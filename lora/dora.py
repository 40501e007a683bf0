"""The gain of DoRA: what each output row is multiplied by. Source: arXiv 2402.09353; peft 0.21, lora.dora.

PEFT computes W x + (m / ||W + s B A|| - 1) W x + m / ||W + s B A|| * s B A x, which is the gain times what
plain LoRA gives. Everything is float32, in pieces, so that a large table needs no second copy.
"""

import torch
from torch import Tensor

_ROWS = 4096


def row_gain(magnitude: Tensor, weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """magnitude / ||W + scale B A|| of each row: float32 [out]. weight [out, in], a [r, in], b [out, r]."""
    norms = [
        torch.linalg.vector_norm(_merged(weight, b, a, scale, start), dim=1)
        for start in range(0, len(weight), _ROWS)
    ]
    return magnitude.float() / torch.cat(norms)


def column_gain(magnitude: Tensor, table: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """The same of each column of a table of tokens: float32 [hidden].

    table [vocab, hidden], a [r, vocab], b [hidden, r].
    """
    squares = torch.zeros(table.shape[1], dtype=torch.float64)
    for start in range(0, len(table), _ROWS):
        squares += _merged(table, a.T, b.T, scale, start).double().square().sum(dim=0)
    return magnitude.float() / squares.sqrt().float()


def folded(weight: Tensor, left: Tensor, right: Tensor, scale: float) -> Tensor:
    """weight + scale left @ right: float32 [rows, columns], with left [rows, r] and right [r, columns]."""
    return torch.cat([_merged(weight, left, right, scale, start) for start in range(0, len(weight), _ROWS)])


def _merged(weight: Tensor, left: Tensor, right: Tensor, scale: float, start: int) -> Tensor:
    rows = slice(start, start + _ROWS)
    return weight[rows].float() + scale * (left[rows].float() @ right.float())
