"""Native models with adapters in their slots: kinds and levels they are tested at, and what all hold."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest
import torch

from engine.adapter_weights import AdapterWeights
from engine.backends import StepModel
from engine.native.levels import Level
from tests.unit.engine.conftest import Row
from tests.unit.engine.native_models import AVX512, KeptLogits

Model = TypeVar("Model", bound=StepModel)
TOLERANCE = {"rtol": 3e-4, "atol": 3e-4}
LEVELS: list[Level] = ["avx2", "avx512", "emulated-amx"] if AVX512 else ["avx2"]
KINDS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "weights": "int8", "kv_cache": "int8"},
}
kinds = pytest.mark.parametrize("kind", KINDS)
levels = pytest.mark.parametrize("level", LEVELS)


def bound(model: Model, adapters: Mapping[int, AdapterWeights]) -> Model:
    for slot, weights in adapters.items():
        model.bind_adapter(slot, model.prepare_adapter(weights))
    return model


def whole(model: StepModel, rows: Sequence[Row]) -> torch.Tensor:
    return model.scores([row.span(0, len(row.token_ids)) for row in rows]).logits.clone()


def assert_pieces_equal_the_whole(model: KeptLogits, rows: Sequence[Row]) -> None:
    draw = random.Random(5)
    for row, want in zip(rows, whole(model, rows), strict=True):
        start = 0
        while start < len(row.token_ids):
            count = min(draw.randint(1, 20), len(row.token_ids) - start)
            got = model.logits([row.span(start, count)])
            start += count
        assert torch.equal(got[0], want)
