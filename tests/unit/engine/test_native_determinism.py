"""A row's logits are the same to the bit alone and in company, in any pieces, on any number of threads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from engine.native.levels import Level
from tests.unit.engine.native_adapters import KINDS, kinds, whole
from tests.unit.engine.native_models import KeptLogits, Shape, adapter, make_rows, native, save_drawn

SHAPE = Shape(hidden=96, inner=160, kv_heads=2, group=3, head_dim=32, vocab=100)
LENGTHS = [1, 5, 16, 17, 33, 64, 65, 100, 130, 47]
SLOTS = [0, 1, 2, 0, 3, 1, 0, 2, 2, 1]
ALL = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]

levels = pytest.mark.parametrize("level", ["best", "avx2"])
windows = pytest.mark.parametrize("window", [0, 20])


def model_of(
    folder: Path, window: int, kind: str, level: Level, threads: int = 2, adapters: bool = False
) -> KeptLogits:
    shape = Shape(**{**vars(SHAPE), "window": window, "family": "Mistral"})
    model = native(save_drawn(shape, folder), level=level, threads=threads, **KINDS[kind])
    if adapters:
        for slot, rank in ((1, 4), (2, 16), (3, 7)):
            model.adapt(slot, adapter(model.spec, rank, slot, ALL if slot < 3 else ALL[:3]))
    return model


@kinds
@levels
@windows
@pytest.mark.parametrize("adapters", [False, True], ids=["base", "adapters"])
def test_alone_equals_in_company(
    tmp_path: Path, window: int, kind: str, level: Level, adapters: bool
) -> None:
    model = model_of(tmp_path, window, kind, level, adapters=adapters)
    rows = make_rows(LENGTHS, 100, seed=1, slots=SLOTS if adapters else ())
    together = whole(model, rows)
    for index, row in enumerate(rows):
        assert torch.equal(whole(model, [row])[0], together[index])


@kinds
@levels
@windows
def test_pieces_equal_the_whole(tmp_path: Path, window: int, kind: str, level: Level) -> None:
    model = model_of(tmp_path, window, kind, level, adapters=True)
    rows = make_rows([130, 97], 100, seed=2, slots=[0, 2])
    want = whole(model, rows)
    draw = random.Random(3)
    for row, expected in zip(rows, want, strict=True):
        for largest in (1, 7, 40):
            start = 0
            while start < len(row.token_ids):
                count = min(draw.randint(1, largest), len(row.token_ids) - start)
                got = model.logits([row.span(start, count)])
                start += count
            assert torch.equal(got[0], expected)


@kinds
def test_decode_beside_a_prefill_equals_decode_alone(tmp_path: Path, kind: str) -> None:
    model = model_of(tmp_path, 0, kind, "best", adapters=True)
    rows = make_rows([60, 80, 90], 100, seed=4, slots=[0, 0, 1])
    model.logits([row.span(0, len(row.token_ids) - 1, samples=False) for row in rows[:2]])
    alone = [model.logits([row.span(len(row.token_ids) - 1, 1)])[0] for row in rows[:2]]
    mixed = model.logits([rows[2].span(0, 90), *(row.span(len(row.token_ids) - 1, 1) for row in rows[:2])])
    assert torch.equal(mixed[1:], torch.stack(alone))


@kinds
def test_number_of_threads_changes_nothing(tmp_path: Path, kind: str) -> None:
    rows = make_rows(LENGTHS, 100, seed=5, slots=SLOTS)
    results = [
        whole(model_of(tmp_path, 20, kind, "best", threads=threads, adapters=True), rows)
        for threads in (1, 2, 5)
    ]
    assert all(torch.equal(result, results[0]) for result in results)


def test_repeated_steps_agree_while_threads_come_and_go(tmp_path: Path) -> None:
    """Five threads on few cores are set aside in the middle of steps all the time."""
    model = model_of(tmp_path, 0, "bfloat16", "best", threads=5)
    rows = make_rows([3, 9, 17], 100, seed=6)
    want = whole(model, rows)
    assert all(torch.equal(whole(model, rows), want) for _ in range(500))
