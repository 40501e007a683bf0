"""Adapters in one batch: equal to PEFT's own forward, to solo runs, and invisible to base rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.errors import AdapterMismatch, AdapterTooLarge
from engine.models.adapter_slots import AdapterSlots
from engine.models.module_groups import layer_group
from engine.modelspec import read_spec
from engine.records import SlotChange
from tests.unit.engine.adapted import TOLERANCE, Adapted, make_rows, steps
from tests.unit.engine.conftest import TinyModel, adapt

# PEFT 0.21 asks transformers 5 for an attribute under its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")

Tiny = Callable[[str], TinyModel]
Blocks = Callable[[int], list[int]]


@pytest.fixture(scope="module")
def adapted(tiny: Tiny) -> Adapted:
    return Adapted(tiny("llama"))


@pytest.mark.parametrize("slots", [[1], [2, 2], [0, 1, 2, 3, 0, 2, 1], [3, 1, 2], [0, 3]])
def test_mixed_batch_equals_peft(tiny: Tiny, adapted: Adapted, blocks: Blocks, slots: list[int]) -> None:
    runner = adapted.load(tiny("llama").runner(), 1, 2, 3)
    rows = make_rows(blocks, slots)
    want = torch.stack([adapted.logits(row.adapter_slot, row.token_ids) for row in rows])
    torch.testing.assert_close(steps(runner, rows), want, **TOLERANCE)


def test_mixed_batch_equals_solo_runs(tiny: Tiny, adapted: Adapted, blocks: Blocks) -> None:
    runner = adapted.load(tiny("llama").runner(), 1, 2, 3)
    rows = make_rows(blocks, [0, 1, 2, 3, 0, 2, 1])
    together = steps(runner, rows)
    alone = torch.cat([steps(runner, [row]) for row in rows])
    torch.testing.assert_close(together, alone, **TOLERANCE)


def test_unloaded_slot_is_the_base_again(tiny: Tiny, adapted: Adapted, blocks: Blocks) -> None:
    runner = adapted.load(tiny("llama").runner(), 1, 2)
    (row,) = make_rows(blocks, [2])
    assert not torch.allclose(steps(runner, [row]), adapted.logits(0, row.token_ids), atol=0.1)
    for _ in range(2):
        runner.change_slots([SlotChange(2, None)])
    torch.testing.assert_close(steps(runner, [row])[0], adapted.logits(0, row.token_ids), **TOLERANCE)


def test_slot_can_be_filled_anew_while_its_neighbours_stay(
    tiny: Tiny, adapted: Adapted, blocks: Blocks
) -> None:
    runner = adapted.load(tiny("llama").runner(), 1, 2)
    rows = make_rows(blocks, [1, 2])
    steps(runner, rows)
    adapt(runner, 1, adapted.weights(3))
    want = torch.stack([adapted.logits(slot, row.token_ids) for slot, row in zip((3, 2), rows, strict=True)])
    torch.testing.assert_close(steps(runner, rows), want, **TOLERANCE)


def test_step_without_adapters_does_no_lora_work(tiny: Tiny, adapted: Adapted) -> None:
    slots = AdapterSlots(read_spec(tiny("llama").folder), 64, torch.float32)
    slots.bind(1, slots.prepare(adapted.weights(1)))
    assert slots.batch([0, 0], [3, 1]) is None
    assert slots.batch([0, 1], [3, 1]) is not None


def test_base_rows_are_left_untouched_bit_by_bit(tiny: Tiny, adapted: Adapted) -> None:
    slots = AdapterSlots(read_spec(tiny("llama").folder), 64, torch.float32)
    slots.bind(2, slots.prepare(adapted.weights(2)))
    batch = slots.batch([0, 2], [3, 2])
    assert batch is not None
    x, y = torch.randn(5, 48), torch.randn(5, 80)
    before = y.clone()
    batch.linear(layer_group(read_spec(tiny("llama").folder), 0, "qkv"), x, y)
    assert torch.equal(y[:3], before[:3])
    assert not torch.equal(y[3:], before[3:])


def test_adapter_that_overflows_harms_no_other_row(tiny: Tiny, adapted: Adapted, blocks: Blocks) -> None:
    huge = {
        name: LoraPair(torch.full_like(pair.a, 3e38), torch.full_like(pair.b, 3e38), 1.0)
        for name, pair in adapted.weights(2).modules.items()
    }
    runner = adapted.load(tiny("llama").runner(), 1, 3)
    adapt(runner, 2, AdapterWeights("sha256:huge", huge))
    rows = make_rows(blocks, [1, 2, 0, 3])
    got = steps(runner, rows)
    assert not got[1].isfinite().all()
    for index in (0, 2, 3):
        want = adapted.logits(rows[index].adapter_slot, rows[index].token_ids)
        torch.testing.assert_close(got[index], want, **TOLERANCE)


def test_bytes_are_those_of_the_tensors(tiny: Tiny, adapted: Adapted) -> None:
    runner = tiny("llama").runner(dtype="bfloat16")
    numbers = sum(pair.a.numel() + pair.b.numel() for pair in adapted.weights(3).modules.values())
    assert runner.prepare_adapter(adapted.weights(3)).nbytes == 2 * numbers


def test_rank_over_the_slots_rank_is_refused(tiny: Tiny, adapted: Adapted) -> None:
    runner = tiny("llama").runner(max_lora_rank=8)
    with pytest.raises(AdapterTooLarge, match="rank 16; at most 8"):
        runner.prepare_adapter(adapted.weights(3))


PAIR = LoraPair(torch.zeros(4, 48), torch.zeros(48, 4), 1.0)


@pytest.mark.parametrize(
    ("module", "pair", "message"),
    [
        (
            "model.layers.9.self_attn.q_proj",
            PAIR,
            "model.layers.9.self_attn.q_proj, which the model does not",
        ),
        ("lm_head", PAIR, "lm_head"),
        (
            "model.layers.0.self_attn.k_proj",
            PAIR,
            r"B of .*k_proj has shape \[48, 4\]; the model needs \[16, 4\]",
        ),
        (
            "model.layers.0.mlp.down_proj",
            PAIR,
            r"A of .*down_proj has shape \[4, 48\]; the model needs \[4, 80\]",
        ),
        (
            "model.layers.0.self_attn.q_proj",
            LoraPair(PAIR.a, PAIR.b + 1e38, 1e38),
            "B of .* not finite as torch.float32",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_named(tiny: Tiny, module: str, pair: LoraPair, message: str) -> None:
    runner = tiny("llama").runner()
    with pytest.raises(AdapterMismatch, match=message):
        runner.prepare_adapter(AdapterWeights("sha256:x", {module: pair}))
