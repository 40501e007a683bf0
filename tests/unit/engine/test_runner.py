"""A step plan in, tokens out: what the runner reports of itself and how it builds a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import InvalidConfig
from engine.modelspec import read_spec
from engine.records import StepPlan
from engine.runner import build_runner
from engine.sampling import SamplingParams
from tests.unit.engine.conftest import Row, TinyModel

Tiny = Callable[[str], TinyModel]
Blocks = Callable[[int], list[int]]


def test_what_it_tells_of_the_model(tiny: Tiny) -> None:
    runner = tiny("llama").runner()
    assert (runner.model_len, runner.vocab_size, runner.num_blocks) == (256, 128, 192)
    assert runner.eos_token_ids == frozenset({2})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pool_is_what_its_bytes_hold(tiny: Tiny, dtype: Any) -> None:
    folder = tiny("llama").folder
    block = read_spec(folder).block_bytes(dtype)
    assert build_runner(EngineConfig(model=folder, dtype=dtype, kv_bytes=5 * block + 1)).num_blocks == 5
    with pytest.raises(InvalidConfig, match=f"kv_bytes is {block - 1}; 16 tokens of this model take {block}"):
        build_runner(EngineConfig(model=folder, dtype=dtype, kv_bytes=block - 1))


def test_threads_are_set(tiny: Tiny) -> None:
    before = torch.get_num_threads()
    try:
        tiny("llama").runner(threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["qwen3", "gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral", "qwen3-moe"])
def test_greedy_decode_equals_generate(tiny: Tiny, blocks: Blocks, name: str) -> None:
    model, prompt = tiny(name), [5, 9, 31, 77, 4]
    runner = model.runner()
    row = Row(3, list(prompt), blocks(30), prompt_len=len(prompt))
    start = 0
    for _ in range(20):
        (sampled,) = runner.run(StepPlan((row.span(start, len(row.token_ids) - start),))).rows
        assert (sampled.seq_id, sampled.error, sampled.logprob) == (3, None, None)
        start = len(row.token_ids)
        row.token_ids.append(sampled.token_id)
    want = model.reference.generate(
        torch.tensor([prompt]), max_new_tokens=20, min_new_tokens=20, do_sample=False, eos_token_id=-1
    )
    assert row.token_ids == want[0].tolist()


def test_rows_come_for_the_sequences_that_sample(tiny: Tiny, blocks: Blocks) -> None:
    rows = [Row(seq_id, [4, 5, 6, 7], blocks(4)) for seq_id in (11, 22, 33)]
    plan = StepPlan(tuple(row.span(0, 4, samples=row.seq_id != 22) for row in rows))
    got = tiny("llama").runner().run(plan).rows
    assert [sampled.seq_id for sampled in got] == [11, 33]
    assert got[0].token_id == got[1].token_id


def test_step_in_which_nothing_samples(tiny: Tiny, blocks: Blocks) -> None:
    row = Row(1, list(range(3, 23)), blocks(20))
    runner = tiny("llama").runner()
    assert runner.run(StepPlan((row.span(0, 12, samples=False),))).rows == ()
    torch.testing.assert_close(
        runner.logits((row.span(12, 8),))[0], tiny("llama").logits(row.token_ids)[-1], rtol=2e-4, atol=2e-4
    )


def test_seeded_rows_draw_the_same_in_any_batch(tiny: Tiny, blocks: Blocks) -> None:
    sampling = SamplingParams(max_tokens=8, temperature=1.0, top_p=0.9)
    rows = [Row(i, [4 + i, 50, 60, 70 + i], blocks(4), sampling=sampling) for i in range(6)]
    spans = [row.span(0, 4, seed=100 + row.seq_id) for row in rows]
    runner = tiny("llama").runner()
    together = [sampled.token_id for sampled in runner.run(StepPlan(tuple(spans))).rows]
    alone = [runner.run(StepPlan((span,))).rows[0].token_id for span in spans]
    assert together == alone
