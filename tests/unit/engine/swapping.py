"""Greedy completions in a pool that is too small for them, and has host memory beside it."""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake_runner import FixedCosts
from engine.sampling import SamplingParams


def complete_in(blocks: int, **settings: Any) -> list[list[int]]:
    """What four prompts come to. `settings` make the pool that large, and host memory for 20 blocks.

    Fewer than 20 blocks are too few for all, and copies are then always worth it.
    """
    prompts = [[(7 * i + 11 * j) % 90 + 3 for i in range(20)] for j in range(4)]
    greedy = SamplingParams(max_tokens=45, temperature=0.0, ignore_eos=True)
    config = EngineConfig(**settings, max_model_len=100, prefix_cache=False, check_integrity=True)
    engine = Engine(config, costs=FixedCosts())
    made = engine.generate(prompts, greedy)
    assert engine.stats().host_blocks_total == 20
    assert engine.stats().blocks_total == blocks
    assert (engine.stats().swaps > 0) == (blocks < 20)
    return made
