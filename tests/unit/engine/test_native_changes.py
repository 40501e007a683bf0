"""Linear modules that an adapter scales, shifts and adds to, natively: row by row as the reference does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from engine.adapter_weights import AdapterWeights, Affine, LoraPair
from engine.modelspec import ModelSpec, read_spec
from engine.native.levels import Level
from engine.reference import ReferenceModel
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_adapters import (
    KINDS,
    TOLERANCE,
    assert_pieces_equal_the_whole,
    bound,
    kinds,
    levels,
    whole,
)
from tests.unit.engine.native_models import NUM_BLOCKS, make_rows, native

Tiny = Callable[[str], TinyModel]
LENGTHS = [9, 17, 5, 30, 12, 21, 8, 11]
SLOTS = [1, 0, 2, 1, 3, 4, 2, 0]
FAMILIES = ["llama", "llama-biased", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral"]


def drawn(
    spec: ModelSpec, seed: int, ranks: Sequence[int], gains: float = 0.0, shifts: float = 0.0
) -> AdapterWeights:
    """Pairs of these ranks in turn, 0 for none, and changes of these sizes on every module of the layers."""
    draw = torch.Generator().manual_seed(seed)
    pairs, affine = {}, {}
    for number, (name, (out, width)) in enumerate(sorted(spec.linear_modules.items())):
        if rank := ranks[number % len(ranks)]:
            a = torch.randn(rank, width, generator=draw) / width**0.5
            pairs[name] = LoraPair(a, torch.randn(out, rank, generator=draw) * 0.5, rank**-0.5)
        gain = 1 + gains * torch.randn(out, generator=draw) if gains else None
        shift = shifts * torch.randn(out, generator=draw) if shifts else None
        if gains or shifts:
            affine[name] = Affine(gain, shift)
    return AdapterWeights(f"sha256:{seed}", pairs, affine=affine)


def four(spec: ModelSpec) -> dict[int, AdapterWeights]:
    """Low and high ranks on some modules, gains and shifts together, alone, and without any pair."""
    return {
        1: drawn(spec, 1, [1, 0, 64], gains=0.3, shifts=0.3),
        2: drawn(spec, 2, [8, 3], gains=0.3),
        3: drawn(spec, 3, [0], shifts=0.3),
        4: drawn(spec, 4, [64, 1]),
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_equals_the_reference_backend(tiny: Tiny, name: str) -> None:
    folder = tiny(name).folder
    spec = read_spec(folder)
    rows = make_rows(LENGTHS, 128, seed=1, slots=SLOTS)
    theirs = bound(ReferenceModel(folder, spec, torch.float32, NUM_BLOCKS, 64), four(spec))
    ours = bound(native(folder), four(spec))
    want = whole(theirs, rows)
    torch.testing.assert_close(whole(ours, rows), want, **TOLERANCE)
    spans = [[row.span(0, len(row.token_ids) - 1) for row in rows]]
    spans.append([row.span(len(row.token_ids) - 1, 1) for row in rows])
    got = [ours.logits(each) for each in spans]
    torch.testing.assert_close(got[1], want, **TOLERANCE)
    base = make_rows(LENGTHS, 128, seed=1)
    assert all(
        torch.allclose(whole(ours, [plain])[0], row, atol=0.1) is (slot == 0)
        for plain, row, slot in zip(base, want, SLOTS, strict=True)
    )


@levels
@pytest.mark.parametrize("name", ["llama-biased", "gemma3", "gpt2"])
def test_levels_and_dtypes_stay_near_the_reference_backend(tiny: Tiny, name: str, level: Level) -> None:
    folder = tiny(name).folder
    spec = read_spec(folder)
    rows = make_rows(LENGTHS, 128, seed=2, slots=SLOTS)
    theirs = ReferenceModel(folder, spec, torch.float32, NUM_BLOCKS, 64)
    want = whole(bound(theirs, four(spec)), rows)
    got = whole(bound(native(folder, level=level), four(spec)), rows)
    torch.testing.assert_close(got, want, **TOLERANCE)
    near = whole(bound(native(folder, level=level, dtype="bfloat16"), four(spec)), rows)
    assert ((near - want).abs().mean(-1) < 0.06 * want.std(-1)).all()


@kinds
@levels
@pytest.mark.parametrize("name", ["llama-biased", "gemma2", "opt"])
def test_a_row_is_the_same_to_the_bit_in_any_company(tiny: Tiny, name: str, kind: str, level: Level) -> None:
    model = native(tiny(name).folder, level=level, **KINDS[kind])
    rows = make_rows([*LENGTHS, *[3] * 14], 128, seed=3, slots=[*SLOTS, *[0, 3, 4, 1, 0, 2, 0] * 2])
    base = [row for row in rows if row.adapter_slot == 0]
    want = whole(model, base)
    bound(model, four(model.spec))
    together = whole(model, rows)
    assert torch.equal(together[[row.adapter_slot == 0 for row in rows]], want)
    assert torch.equal(together, torch.cat([whole(model, [row]) for row in rows]))
    steps = [model.logits([row.span(len(row.token_ids) - 1, 1) for row in some]) for some in (rows, rows[:5])]
    assert torch.equal(steps[0], together)
    assert torch.equal(steps[1], together[:5])


@kinds
@levels
def test_pieces_equal_the_whole(tiny: Tiny, kind: str, level: Level) -> None:
    model = native(tiny("llama-biased").folder, level=level, **KINDS[kind])
    bound(model, four(model.spec))
    rows = make_rows([60, 41, 50, 33], 128, seed=4, slots=[1, 2, 3, 4])
    assert_pieces_equal_the_whole(model, rows)


@kinds
def test_number_of_threads_changes_nothing(tiny: Tiny, kind: str) -> None:
    rows = make_rows(LENGTHS * 3, 128, seed=6, slots=SLOTS * 3)
    spec = read_spec(tiny("llama-biased").folder)
    found = [
        whole(bound(native(tiny("llama-biased").folder, threads=threads, **KINDS[kind]), four(spec)), rows)
        for threads in (1, 2, 5)
    ]
    assert all(torch.equal(logits, found[0]) for logits in found)


def test_a_low_rank_takes_no_more_memory_than_it_needs(tiny: Tiny) -> None:
    model = native(tiny("llama").folder, dtype="bfloat16")
    one, many = (model.prepare_adapter(drawn(model.spec, 1, [rank])).nbytes for rank in (2, 64))
    assert many > 20 * one
