"""PEFT's own adapters on a tiny model, and the same weights for the engine's slots."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import peft
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.runner import Runner
from tests.unit.engine.conftest import Row, TinyModel, adapt

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

    def __init__(self, model: TinyModel, adapters: Mapping[int, dict[str, Any]] = ADAPTERS) -> None:
        base = type(model.reference)(model.reference.config)
        base.load_state_dict(model.reference.state_dict())
        torch.manual_seed(11)
        configs = {f"a{slot}": peft.LoraConfig(init_lora_weights=False, **c) for slot, c in adapters.items()}
        self.peft = peft.get_peft_model(base, configs["a1"], adapter_name="a1").eval()
        for name in ("a2", "a3"):
            self.peft.add_adapter(name, configs[name])

    def weights(self, slot: int) -> AdapterWeights:
        modules = {}
        for name, module in self.peft.base_model.model.named_modules():
            if f"a{slot}" in getattr(module, "lora_A", {}):
                a, b = (getattr(module, key)[f"a{slot}"].weight.detach() for key in ("lora_A", "lora_B"))
                modules[name] = LoraPair(a, b, module.scaling[f"a{slot}"])
        invocation = self.peft.peft_config[f"a{slot}"].alora_invocation_tokens or ()
        return AdapterWeights(f"sha256:{slot}", modules, invocation=tuple(invocation))

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
            adapt(runner, slot, self.weights(slot))
        return runner


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
