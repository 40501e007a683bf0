"""Copies of cache blocks before a step, and prefixes reused to the token, on both backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.modelspec import read_spec
from engine.records import BlockCopy, StepPlan
from engine.sampling import SamplingParams
from tests.unit.engine.conftest import Row, TinyModel
from tests.unit.engine.native_models import native
from tests.unit.engine.swapping import complete_in

Tiny = Callable[[str], TinyModel]
Backend = Literal["native", "reference"]
BACKENDS: tuple[Backend, ...] = ("native", "reference")


@pytest.fixture(autouse=True)
def torch_threads() -> object:
    """The native backend leaves torch a single thread; other tests get theirs back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sequence_goes_on_in_copies_made_in_order(tiny: Tiny, backend: Backend) -> None:
    runner = tiny("qwen3").runner(backend=backend)
    token_ids = [(7 * i) % 100 + 3 for i in range(30)]
    row = Row(1, token_ids, [5, 9])
    runner.run(StepPlan((row.span(0, 29, samples=False),)))
    (wanted,) = runner.logits((row.span(29, 1),)).clone()
    copied = Row(2, token_ids, [2, 3])
    copies = (BlockCopy(5, 60), BlockCopy(60, 2), BlockCopy(9, 60), BlockCopy(60, 3))
    runner.run(StepPlan((copied.span(28, 1, samples=False),), copies))
    (got,) = runner.logits((copied.span(29, 1),))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_greedy_tokens_are_the_same_with_a_prefix_reused_to_the_token(tiny: Tiny, backend: Backend) -> None:
    folder = tiny("llama").folder
    prompts = [[(7 * i) % 100 + 3 for i in range(length)] for length in (44, 44, 30, 60)]
    prompts[1][41:] = [99, 98, 97]
    greedy = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)

    def completions(prefix_cache: bool) -> list[list[int]]:
        config = EngineConfig(
            model=folder, dtype="float32", num_blocks=40, backend=backend, prefix_cache=prefix_cache
        )
        engine = Engine(config)
        made = [engine.generate([prompt], greedy)[0] for prompt in prompts]
        assert (engine.stats().prefix_hits > 0) == prefix_cache
        return made

    assert completions(True) == completions(False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_greedy_tokens_are_the_same_after_a_swap(tiny: Tiny, backend: Backend) -> None:
    folder = tiny("llama").folder
    sizes = {"swap_bytes": 20 * read_spec(folder).block_bytes("float32")}

    def completions(num_blocks: int) -> list[list[int]]:
        settings = {"dtype": "float32", "backend": backend, "num_blocks": num_blocks, **sizes}
        return complete_in(num_blocks, model=folder, **settings)

    assert completions(9) == completions(60)


def test_the_native_backend_refuses_blocks_it_lacks(tiny: Tiny) -> None:
    model = native(tiny("llama").folder)
    with pytest.raises(ValueError, match=r"blocks to copy lie in 1 \.\. \d+; the model has"):
        model.copy_blocks([BlockCopy(1, 1 << 20)])
    with pytest.raises(ValueError, match=r"blocks to copy lie in -1 \.\. 2"):
        model.copy_blocks([BlockCopy(-1, 2)])
