"""Hidden states of texts' tokens to vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from engine.embeddingspec import Pooling

POOLINGS: Mapping[Pooling, Callable[[Tensor], Tensor]] = {
    "mean": lambda states: states.mean(0),
    "cls": lambda states: states[0],
    "last": lambda states: states[-1],
}
"""By name: states [tokens, hidden] of one text -> [hidden]."""


def pool(states: Tensor, lengths: Sequence[int], pooling: Pooling) -> list[Tensor]:
    """states [T, hidden] of texts one after another -> float32 [hidden] of each."""
    parts = torch.split(states[: sum(lengths)].to(torch.float32), list(lengths))
    return [POOLINGS[pooling](part) for part in parts]
