"""Activated adapters through a whole engine equal PEFT's own forward, whatever shares their blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.engine import Engine
from engine.sampling import SamplingParams
from tests.unit.engine.adapted import ALL, Adapted
from tests.unit.engine.conftest import TinyModel

# PEFT 0.21 asks transformers 5 for an attribute under its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")

MARK = [7, 8]
CAUSAL: dict[str, Any] = {"task_type": "CAUSAL_LM"}
ADAPTERS: dict[int, dict[str, Any]] = {
    1: {"r": 4, "lora_alpha": 16, "target_modules": ALL, "alora_invocation_tokens": MARK, **CAUSAL},
    2: {"r": 8, "lora_alpha": 16, "target_modules": ALL, "alora_invocation_tokens": [9], **CAUSAL},
    3: {"r": 4, "lora_alpha": 16, "target_modules": ALL, **CAUSAL},
}
HEAD = [3 + (5 * at) % 90 + 10 for at in range(20)]
PROMPTS = {1: [*HEAD, *MARK, 11, *HEAD, *MARK, 12], 2: [*HEAD, *HEAD, 9, 13], 3: [*HEAD, 14]}


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_completions_equal_pefts(tiny: Callable[[str], TinyModel], name: str, backend: Any) -> None:
    model = tiny(name)
    adapted = Adapted(model, ADAPTERS)
    engine = Engine(
        EngineConfig(
            model=model.folder,
            dtype="float32",
            backend=backend,
            num_blocks=64,
            adapter_slots=1,
            max_batched_tokens=24,
            max_num_seqs=4,
            check_integrity=True,
        )
    )
    weights = {slot: adapted.weights(slot) for slot in PROMPTS}
    for each in weights.values():
        engine.add_adapter(engine.prepare_adapter(each))
    sampling = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
    for _ in range(2):
        for slot in (0, *PROMPTS):
            prompt = PROMPTS[slot or 1]
            digest = weights[slot].digest if slot else None
            (made,) = engine.generate([prompt], sampling, adapter=digest)
            assert made == _greedy(adapted, slot, prompt, 6)
    assert engine.stats().prefix_hits > 3 * 32


def _greedy(adapted: Adapted, slot: int, prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(adapted.logits(slot, ids).argmax()))
    return ids[len(prompt) :]
