"""What tells the families apart, fact by fact, in the native backend: the same numbers as the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.modelspec import read_spec
from engine.native.model import Level
from engine.reference import ReferenceModel
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_models import NUM_BLOCKS, KeptLogits, make_rows

Tiny = Callable[[str], TinyModel]
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}


@pytest.mark.parametrize("level", ["best", "avx2"])
@pytest.mark.parametrize("changes", [{"query_scale": 0.7}, {"attention_softcap": 2.0}], ids=["scale", "cap"])
def test_scores_are_scaled_and_capped(tiny: Tiny, level: Level, changes: dict[str, Any]) -> None:
    folder = tiny("llama").folder
    spec = replace(read_spec(folder), **changes)
    ours = KeptLogits(spec, torch.float32, NUM_BLOCKS, max_rank=8, threads=2, level=level)
    ours.load(folder)
    theirs = ReferenceModel(folder, spec, torch.float32, NUM_BLOCKS, 8)
    (row,) = make_rows([70], 128, seed=1)
    for start, count in ((0, 50), (50, 1), (51, 19)):
        span = (row.span(start, count),)
        torch.testing.assert_close(ours.logits(span), theirs.scores(span).logits, **TOLERANCE)
