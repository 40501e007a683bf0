"""Adapters of the native backend: slots filled, emptied and refused as in the reference backend."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.errors import AdapterMismatch, AdapterTooLarge
from tests.unit.engine.conftest import Row, TinyModel, adapt
from tests.unit.engine.native_models import KeptLogits, adapter, make_rows, native, reference

Tiny = Callable[[str], TinyModel]
ALL = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
TOLERANCE = {"rtol": 3e-4, "atol": 3e-4}


def last(model: KeptLogits, *rows: Row) -> torch.Tensor:
    return model.logits([row.span(0, len(row.token_ids)) for row in rows])


@pytest.mark.parametrize("name", ["llama", "llama-biased", "qwen2", "qwen3", "mistral-window"])
def test_mixed_batch_equals_reference(tiny: Tiny, name: str) -> None:
    ours, theirs = native(tiny(name).folder), reference(tiny(name).folder)
    for slot, (rank, modules) in enumerate(((4, ALL[:3:2]), (8, ALL), (16, ALL[3:])), start=1):
        weights = adapter(ours.spec, rank, slot, modules)
        ours.adapt(slot, weights)
        adapt(theirs, slot, weights)
    rows = make_rows([9, 17, 5, 30, 12, 21, 8], 128, seed=1, slots=[0, 1, 2, 3, 0, 2, 1])
    spans = tuple(row.span(0, len(row.token_ids)) for row in rows)
    torch.testing.assert_close(ours.logits(spans), theirs.logits(spans), **TOLERANCE)


def test_bfloat16_adapters_stay_near_float32(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    narrow, wide = native(folder, dtype="bfloat16"), reference(folder)
    (row,) = make_rows([30], 128, seed=2, slots=[1])
    weights = adapter(narrow.spec, 8, 1, ALL)
    narrow.adapt(1, weights)
    adapt(wide, 1, weights)
    got, want = last(narrow, row), wide.logits((row.span(0, 30),))
    assert (got - want).abs().mean() < 0.05 * want.std()


def test_unloaded_slot_is_the_base_again_to_the_bit(tiny: Tiny) -> None:
    model = native(tiny("llama").folder)
    base, adapted = make_rows([20, 20], 128, seed=3, slots=[0, 2])
    adapted.token_ids = base.token_ids
    want = last(model, base)
    model.adapt(2, adapter(model.spec, 8, 1, ALL))
    assert not torch.allclose(last(model, adapted), want, atol=0.1)
    for _ in range(2):
        model.unbind_adapter(2)
        assert torch.equal(last(model, adapted), want)


def test_slot_is_filled_anew_while_its_neighbour_stays(tiny: Tiny) -> None:
    model = native(tiny("llama").folder)
    first, second = make_rows([12, 20], 128, seed=4, slots=[1, 2])
    model.adapt(1, adapter(model.spec, 4, 1, ALL))
    model.adapt(2, adapter(model.spec, 8, 2, ALL))
    before = last(model, first, second)
    model.adapt(1, adapter(model.spec, 16, 3, ALL))
    after = last(model, first, second)
    assert torch.equal(before[1], after[1])
    assert not torch.allclose(before[0], after[0], atol=0.1)


def test_bytes_are_those_of_the_packed_matrices(tiny: Tiny) -> None:
    model = native(tiny("llama").folder, dtype="bfloat16")
    weights = adapter(model.spec, 16, 1, ["self_attn.o_proj"])
    # In three layers: A [16, 48] up to whole cache lines, B [48, 16], and where each 16 of 64 columns begin.
    assert model.prepare_adapter(weights).nbytes == 3 * (16 * 128 + 2 * 48 * 16 + 5 * 12)


def test_adapter_that_overflows_harms_no_other_row(tiny: Tiny) -> None:
    model = native(tiny("llama").folder)
    rows = make_rows([9, 17, 5], 128, seed=5, slots=[1, 2, 0])
    model.adapt(1, adapter(model.spec, 4, 1, ALL))
    want = last(model, *rows)
    huge = {
        name: LoraPair(torch.full((2, width), 3e38), torch.full((out, 2), 3e38), 1.0)
        for name, (out, width) in model.spec.linear_modules.items()
    }
    model.adapt(2, AdapterWeights("sha256:huge", huge))
    got = last(model, *rows)
    assert not got[1].isfinite().all()
    assert torch.equal(got[::2], want[::2])


def test_rank_over_the_allowed_one_is_refused(tiny: Tiny) -> None:
    model = native(tiny("llama").folder, max_rank=8)
    with pytest.raises(AdapterTooLarge, match="rank 16; at most 8"):
        model.prepare_adapter(adapter(model.spec, 16, 1, ALL))


def test_what_does_not_fit_is_refused(tiny: Tiny) -> None:
    model = native(tiny("llama").folder)
    good = adapter(model.spec, 4, 1, ALL)
    bad = LoraPair(torch.zeros(4, 47), torch.zeros(48, 4), 1.0)
    weights = AdapterWeights("sha256:x", {**good.modules, "model.layers.2.self_attn.q_proj": bad})
    with pytest.raises(AdapterMismatch, match=r"q_proj has shape \[4, 47\]; the model needs \[4, 48\]"):
        model.prepare_adapter(weights)


def test_model_goes_with_its_last_reference(tiny: Tiny) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1])

    model = native(tiny("llama").folder)
    for _ in range(20):
        model = native(tiny("llama").folder)
        last(model, *make_rows([5], 128, seed=1))
    before = resident()
    for _ in range(20):
        model = native(tiny("llama").folder)
        last(model, *make_rows([5], 128, seed=1))
    gc.collect()
    # Each has weights and work space on huge pages of 2 MiB and more.
    assert resident() - before < 10 * (2 << 20) // 4096
