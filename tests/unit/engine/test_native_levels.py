"""The instruction set chosen, and products by tiles, which plain code works out where there is no AMX."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engine.errors import NativeUnavailable
from engine.native.build import default_cache
from engine.native.levels import LEVELS, TOLERANCE, Level, choose_level
from engine.native.library import open_library
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_models import TILE_LEVELS, Shape, make_rows, native, reference, save_drawn

TAILS = Shape(hidden=70, inner=90, kv_heads=1, group=3, head_dim=22, vocab=75)
"""Nowhere a whole number of tiles of 32 terms, nor of panels."""
WHOLE = Shape(hidden=64, inner=96, kv_heads=2, group=2, head_dim=32, vocab=64)

tile_levels = pytest.mark.parametrize("level", TILE_LEVELS)
shapes = pytest.mark.parametrize("shape", [TAILS, WHOLE], ids=["tails", "whole"])


@dataclass
class Processor:
    """A library that says what it is told to."""

    level: int
    distance: float = 0.0

    def noria_level(self) -> int:
        return self.level

    def noria_disagreement(self, level: int, /) -> float:
        assert level == LEVELS["amx"]
        return self.distance


@pytest.mark.parametrize(
    ("wanted", "best", "chosen"),
    [
        ("best", 1, 1),
        ("best", 2, 2),
        ("best", 3, 3),
        ("avx2", 3, 1),
        ("avx512", 3, 2),
        ("emulated-amx", 2, 4),
    ],
)
def test_best_is_what_the_processor_has(wanted: Level, best: int, chosen: int) -> None:
    assert choose_level(Processor(best), wanted) == chosen


@pytest.mark.parametrize(("wanted", "best"), [("avx512", 1), ("amx", 2), ("emulated-amx", 1)])
def test_level_that_the_processor_lacks_is_refused(wanted: Level, best: int) -> None:
    with pytest.raises(NativeUnavailable, match=f"cannot run the {wanted} kernels"):
        choose_level(Processor(best), wanted)


@pytest.mark.parametrize("distance", [2 * TOLERANCE, 1.0, float("nan")])
def test_amx_that_computes_something_else_is_left_and_told_of(
    distance: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert choose_level(Processor(LEVELS["amx"], distance), "best") == LEVELS["avx512"]
    assert "steps run on AVX-512" in caplog.text
    with pytest.raises(NativeUnavailable, match="of their size from those with AVX-512"):
        choose_level(Processor(LEVELS["amx"], distance), "amx")


@tile_levels
def test_drawn_product_is_that_of_avx512(level: Level) -> None:
    library = open_library(default_cache())
    number = choose_level(library, level)
    assert library.noria_level() < LEVELS["avx512"] or library.noria_disagreement(number) <= TOLERANCE / 10


@tile_levels
@shapes
def test_rows_do_not_depend_on_their_company(tmp_path: Path, level: Level, shape: Shape) -> None:
    """Around the borders of tiles of rows: 16, and 32 for two of them."""
    model = native(save_drawn(shape, tmp_path), dtype="bfloat16", level=level)
    rows = make_rows([1, 14, 15, 16, 17, 18, 31, 32, 33, 34, 47, 48, 49, 65], shape.vocab, seed=1)
    alone = [model.logits([row.span(0, len(row.token_ids))])[0] for row in rows]
    together = model.logits([row.span(0, len(row.token_ids)) for row in rows])
    assert torch.equal(together, torch.stack(alone))
    for row, expected in zip(rows, alone, strict=True):
        for position in range(len(row.token_ids)):
            by_one = model.logits([row.span(position, 1)])
        assert torch.equal(by_one[0], expected)


@tile_levels
@shapes
def test_logits_are_close_to_those_of_avx2(tmp_path: Path, level: Level, shape: Shape) -> None:
    folder = save_drawn(shape, tmp_path)
    rows = make_rows([1, 5, 16, 40], shape.vocab, seed=2)
    spans = [row.span(0, len(row.token_ids)) for row in rows]
    found, wanted = (native(folder, dtype="bfloat16", level=each).logits(spans) for each in (level, "avx2"))
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


@tile_levels
@pytest.mark.parametrize("name", ["gemma3", "gpt2", "opt"])
def test_activations_other_than_silu_follow_products_by_tiles(
    tiny: Callable[[str], TinyModel], name: str, level: Level
) -> None:
    rows = make_rows([9, 30, 17], 128, seed=3)
    spans = [row.span(0, len(row.token_ids)) for row in rows]
    want = reference(tiny(name).folder).logits(tuple(spans))
    got = native(tiny(name).folder, level=level, dtype="bfloat16").logits(spans)
    assert ((got - want).abs().mean(-1) < 0.05 * want.std(-1)).all()
