"""Adapters in one batch: equal to PEFT's own forward, to solo runs, and invisible to base rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch

from engine.errors import AdapterMismatch, AdapterTooLarge
from engine.lora import AdapterWeights, LoraPair, LoraSlots
from engine.modelspec import read_spec
from engine.runner import Runner
from tests.unit.engine.conftest import Row, TinyModel

# PEFT 0.21 asks transformers 5 for an attribute under its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")

Tiny = Callable[[str], TinyModel]
Blocks = Callable[[int], list[int]]
TOLERANCE = {"rtol": 3e-4, "atol": 3e-4}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[int, dict[str, Any]] = {
    1: {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    2: {"r": 8, "lora_alpha": 4, "target_modules": ALL},
    3: {"r": 16, "lora_alpha": 32, "target_modules": ["down_proj", "k_proj"], "rank_pattern": {"k_proj": 6}},
}


class Adapted:
    """A copy of a tiny model that carries the three adapters of PEFT, and the same weights for slots."""

    def __init__(self, model: TinyModel) -> None:
        base = type(model.reference)(model.reference.config)
        base.load_state_dict(model.reference.state_dict())
        torch.manual_seed(11)
        configs = {f"a{slot}": peft.LoraConfig(init_lora_weights=False, **c) for slot, c in ADAPTERS.items()}
        self.peft = peft.get_peft_model(base, configs["a1"], adapter_name="a1").eval()
        for name in ("a2", "a3"):
            self.peft.add_adapter(name, configs[name])

    def weights(self, slot: int) -> AdapterWeights:
        modules = {}
        for name, module in self.peft.base_model.model.named_modules():
            if f"a{slot}" in getattr(module, "lora_A", {}):
                a, b = (getattr(module, key)[f"a{slot}"].weight.detach() for key in ("lora_A", "lora_B"))
                modules[name] = LoraPair(a, b, module.scaling[f"a{slot}"])
        return AdapterWeights(f"sha256:{slot}", modules)

    def logits(self, slot: int, ids: list[int]) -> torch.Tensor:
        """Last logits, by PEFT itself."""
        with torch.no_grad(), warnings.catch_warnings():
            if slot == 0:
                with self.peft.disable_adapter():
                    return self.peft(torch.tensor([ids])).logits[0, -1]
            self.peft.set_adapter(f"a{slot}")
            return self.peft(torch.tensor([ids])).logits[0, -1]

    def load(self, runner: Runner, *slots: int) -> Runner:
        for slot in slots:
            runner.load_adapter(slot, self.weights(slot))
        return runner


@pytest.fixture(scope="module")
def adapted(tiny: Tiny) -> Adapted:
    return Adapted(tiny("llama"))


def make_rows(blocks: Blocks, slots: list[int]) -> list[Row]:
    lengths = [9, 17, 5, 30, 12, 21, 8][: len(slots)]
    random_ = torch.Generator().manual_seed(4)
    return [
        Row(
            i, torch.randint(3, 128, (length,), generator=random_).tolist(), blocks(length), adapter_slot=slot
        )
        for i, (slot, length) in enumerate(zip(slots, lengths, strict=True))
    ]


def steps(runner: Runner, rows: list[Row]) -> torch.Tensor:
    """Prefill all but the last two tokens of every row together, then one token each, twice."""
    for tail in (2, 1, 0):
        batch = []
        for row in rows:
            start = 0 if tail == 2 else len(row.token_ids) - tail - 1
            batch.append(row.span(start, len(row.token_ids) - tail - start))
        logits = runner.logits(tuple(batch))
    return logits


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


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "mistral-window"])
def test_other_families_equal_peft(tiny: Tiny, blocks: Blocks, name: str) -> None:
    model = tiny(name)
    adapted = Adapted(model)
    runner = adapted.load(model.runner(), 1, 2, 3)
    rows = make_rows(blocks, [2, 0, 1, 3])
    want = torch.stack([adapted.logits(row.adapter_slot, row.token_ids) for row in rows])
    torch.testing.assert_close(steps(runner, rows), want, **TOLERANCE)


def test_unloaded_slot_is_the_base_again(tiny: Tiny, adapted: Adapted, blocks: Blocks) -> None:
    runner = adapted.load(tiny("llama").runner(), 1, 2)
    (row,) = make_rows(blocks, [2])
    assert not torch.allclose(steps(runner, [row]), adapted.logits(0, row.token_ids), atol=0.1)
    assert runner.unload_adapter(2) > 0
    assert runner.unload_adapter(2) == 0
    torch.testing.assert_close(steps(runner, [row])[0], adapted.logits(0, row.token_ids), **TOLERANCE)


def test_slot_can_be_filled_anew_while_its_neighbours_stay(
    tiny: Tiny, adapted: Adapted, blocks: Blocks
) -> None:
    runner = adapted.load(tiny("llama").runner(), 1, 2)
    rows = make_rows(blocks, [1, 2])
    steps(runner, rows)
    runner.unload_adapter(1)
    runner.load_adapter(1, adapted.weights(3))
    want = torch.stack([adapted.logits(slot, row.token_ids) for slot, row in zip((3, 2), rows, strict=True)])
    torch.testing.assert_close(steps(runner, rows), want, **TOLERANCE)


def test_step_without_adapters_does_no_lora_work(tiny: Tiny, adapted: Adapted) -> None:
    slots = LoraSlots(read_spec(tiny("llama").folder), 64, torch.float32)
    slots.load(1, adapted.weights(1))
    assert slots.batch([0, 0], [3, 1]) is None
    assert slots.batch([0, 1], [3, 1]) is not None


def test_base_rows_are_left_untouched_bit_by_bit(tiny: Tiny, adapted: Adapted) -> None:
    slots = LoraSlots(read_spec(tiny("llama").folder), 64, torch.float32)
    slots.load(2, adapted.weights(2))
    batch = slots.batch([0, 2], [3, 2])
    assert batch is not None
    x, y = torch.randn(5, 48), torch.randn(5, 80)
    before = y.clone()
    batch.add_delta(0, "qkv", x, y)
    assert torch.equal(y[:3], before[:3])
    assert not torch.equal(y[3:], before[3:])


def test_adapter_that_overflows_harms_no_other_row(tiny: Tiny, adapted: Adapted, blocks: Blocks) -> None:
    huge = {
        name: LoraPair(torch.full_like(pair.a, 3e38), torch.full_like(pair.b, 3e38), 1.0)
        for name, pair in adapted.weights(2).modules.items()
    }
    runner = adapted.load(tiny("llama").runner(), 1, 3)
    runner.load_adapter(2, AdapterWeights("sha256:huge", huge))
    rows = make_rows(blocks, [1, 2, 0, 3])
    got = steps(runner, rows)
    assert not got[1].isfinite().all()
    for index in (0, 2, 3):
        want = adapted.logits(rows[index].adapter_slot, rows[index].token_ids)
        torch.testing.assert_close(got[index], want, **TOLERANCE)


def test_bytes_are_those_of_the_tensors(tiny: Tiny, adapted: Adapted) -> None:
    runner = tiny("llama").runner(dtype="bfloat16")
    numbers = sum(pair.a.numel() + pair.b.numel() for pair in adapted.weights(3).modules.values())
    assert runner.load_adapter(3, adapted.weights(3)) == 2 * numbers
    assert runner.unload_adapter(3) == 2 * numbers


def test_rank_over_the_slots_rank_is_refused(tiny: Tiny, adapted: Adapted) -> None:
    runner = tiny("llama").runner(max_lora_rank=8)
    with pytest.raises(AdapterTooLarge, match="rank 16; at most 8"):
        runner.load_adapter(1, adapted.weights(3))
    assert runner.unload_adapter(1) == 0


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
            "not finite after scaling",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_named(tiny: Tiny, module: str, pair: LoraPair, message: str) -> None:
    runner = tiny("llama").runner()
    with pytest.raises(AdapterMismatch, match=message):
        runner.load_adapter(1, AdapterWeights("sha256:x", {module: pair}))
    assert runner.unload_adapter(1) == 0
