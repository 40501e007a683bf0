"""Products in int8 as csrc/quantise.h and gemm_int8.h make them, in torch, and a reference model of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.models import gemma, gpt2, llama, mixture, projection, stack
from engine.modelspec import read_spec
from engine.runner import Runner
from tests.unit.engine.native_models import reference

TURN = 64
GAIN = 8.0
"""How much longer a turned row is: the square root of TURN."""


def turned(x: Tensor) -> Tensor:
    """Float32 [..., k] -> [..., k up to whole blocks of 64], each block times a Hadamard matrix."""
    x = F.pad(x.float(), (0, -x.shape[-1] % TURN))
    blocks = x.unflatten(-1, (-1, TURN))
    for distance in (1, 2, 4, 8, 16, 32):
        first, second = blocks.unflatten(-1, (-1, 2, distance)).unbind(-2)
        blocks = torch.stack((first + second, first - second), -2).flatten(-3)
    return blocks.flatten(-2)


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers -127 .. 127 of each turned row, as float64, and the scales [..., 1] of the rows."""
    x = turned(x)
    largest = x.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest < 1e-30, torch.zeros(()), 127.0 / largest)
    return torch.round(x * inverse).double(), torch.where(largest < 1e-30, 0.0, largest / 127.0 / GAIN)


def restored(x: Tensor) -> Tensor:
    """What is left of each row after it was quantised and turned back."""
    whole, scale = quantised(x)
    return (turned(whole.float()) * (scale / GAIN))[..., : x.shape[-1]]


class Int8Linear:
    """See engine.models.linear.Linear."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, scale = quantised(weight)
        self._scale = scale.T
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        rows, scale = quantised(x)
        y = (rows @ self._weight.T).float() * self._scale * scale
        return (y if self._bias is None else y + self._bias.float()).to(x.dtype)


def simulated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """The reference model of `folder` in float32 whose products are in int8."""

    def embedding(table: Tensor, scale: float = 1.0) -> stack.TokenEmbedding:
        return stack.TokenEmbedding(restored(table), scale)

    def placed(table: Tensor, positions: Tensor, offset: int = 0) -> stack.PositionedEmbedding:
        return stack.PositionedEmbedding(restored(table), positions, offset)

    with monkeypatch.context() as patched:
        for module in (projection, stack, mixture):
            patched.setattr(module, "make_linear", Int8Linear)
        if read_spec(folder).tie_embeddings:
            for module in (llama, gemma):
                patched.setattr(module, "TokenEmbedding", embedding)
            patched.setattr(gpt2, "PositionedEmbedding", placed)
        return reference(folder)
