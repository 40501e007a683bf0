"""The reference backend against attention written out over plain, unpaged tensors."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from engine.attention import create_attention
from engine.attention.base import AttentionBackend, SeqSpan
from engine.config import BLOCK_SIZE, blocks_for
from engine.modelspec import ModelSpec
from engine.ropespec import RopeSpec

HEADS, KV_HEADS, HEAD_DIM, NUM_BLOCKS = 4, 2, 8, 48


def spec(*windows: int | None) -> ModelSpec:
    return ModelSpec(
        family="llama",
        hidden_size=HEADS * HEAD_DIM,
        intermediate_size=8,
        num_layers=len(windows),
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        vocab_size=8,
        max_position=512,
        rms_norm_eps=1e-6,
        tie_embeddings=True,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        windows=windows,
        rope=RopeSpec(kind="default", theta=10000.0, options={}),
        bos_token_id=None,
        eos_token_ids=(),
    )


class History:
    """One sequence's queries, keys and values in plain order, and the blocks they are cached in."""

    def __init__(self, length: int, table: list[int], seed: int) -> None:
        random_ = torch.Generator().manual_seed(seed)
        self.q = torch.randn(length, HEADS, HEAD_DIM, generator=random_)
        self.k, self.v = (torch.randn(length, KV_HEADS, HEAD_DIM, generator=random_) for _ in range(2))
        self.table = table

    def expected(self, start: int, end: int, window: int | None) -> Tensor:
        """Token by token, head by head."""
        out = torch.empty(end - start, HEADS, HEAD_DIM)
        for position in range(start, end):
            low = 0 if window is None else max(0, position - window + 1)
            for head in range(HEADS):
                shared = head * KV_HEADS // HEADS
                scores = self.k[low : position + 1, shared] @ self.q[position, head] / HEAD_DIM**0.5
                out[position - start, head] = scores.softmax(0) @ self.v[low : position + 1, shared]
        return out


def attend(backend: AttentionBackend, layer: int, parts: list[tuple[History, int, int]]) -> list[Tensor]:
    """One step over (history, start, end) parts."""
    plan = backend.plan([SeqSpan(start, end - start, one.table) for one, start, end in parts])
    q, k, v = (torch.cat([getattr(one, n)[s:e] for one, s, e in parts]) for n in "qkv")
    out = backend.attend(layer, q, k, v, plan)
    return list(out.split([end - start for _, start, end in parts]))


def histories(lengths: list[int], seed: int, groups: int = 1) -> list[History]:
    free = list(range(NUM_BLOCKS))
    random.Random(seed).shuffle(free)
    tables = [[free.pop() for _ in range(blocks_for(length) * groups)] for length in lengths]
    return [
        History(length, table, seed + n)
        for n, (length, table) in enumerate(zip(lengths, tables, strict=True))
    ]


@pytest.mark.parametrize("window", [None, 1, 5, BLOCK_SIZE, 40])
@pytest.mark.parametrize("seed", range(4))
def test_random_steps_equal_plain_attention(window: int | None, seed: int) -> None:
    """Sequences advance by random amounts, together, so steps mix prefills, chunks and single tokens."""
    chance = random.Random(seed)
    lengths = [chance.randint(1, 120) for _ in range(5)]
    sequences = histories(lengths, seed)
    backend = create_attention("reference", spec(window), NUM_BLOCKS, torch.float32)
    done = [0] * len(sequences)
    while any(d < n for d, n in zip(done, lengths, strict=True)):
        parts = []
        for i, one in enumerate(sequences):
            step = min(chance.choice([0, 1, 1, 1, 3, 16, 50]), lengths[i] - done[i])
            if step:
                parts.append((one, done[i], done[i] + step))
                done[i] += step
        if parts:
            got = attend(backend, 0, parts)
            for found, (one, start, end) in zip(got, parts, strict=True):
                torch.testing.assert_close(found, one.expected(start, end, window), rtol=1e-5, atol=1e-5)


def test_layers_have_windows_of_their_own() -> None:
    one = histories([40], seed=1, groups=2)[0]
    backend = create_attention("reference", spec(None, 7), NUM_BLOCKS, torch.float32)
    for layer, window in ((0, None), (1, 7)):
        (found,) = attend(backend, layer, [(one, 0, 40)])
        torch.testing.assert_close(found, one.expected(0, 40, window), rtol=1e-5, atol=1e-5)


def test_sequences_that_share_blocks_see_the_same_prefix() -> None:
    first, second = histories([40, 40], seed=2)
    for name in "kv":
        getattr(second, name)[:32] = getattr(first, name)[:32]
    second.table[:2] = first.table[:2]
    backend = create_attention("reference", spec(None), NUM_BLOCKS, torch.float32)
    attend(backend, 0, [(first, 0, 40)])
    (found,) = attend(backend, 0, [(second, 32, 40)])
    torch.testing.assert_close(found, second.expected(32, 40, None), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ends", [(33, 34), (20, 34)], ids=["single token", "chunk"])
def test_values_left_in_a_block_by_others_are_never_read(ends: tuple[int, int]) -> None:
    """Not even where the mask would hide them: NaN goes through a mask."""
    poison = History(NUM_BLOCKS * BLOCK_SIZE, list(range(NUM_BLOCKS)), seed=3)
    poison.k[:], poison.v[:] = torch.nan, torch.inf
    backend = create_attention("reference", spec(None), NUM_BLOCKS, torch.float32)
    attend(backend, 0, [(poison, 0, len(poison.k))])
    short, long = histories([5, 34], seed=4)
    attend(backend, 0, [(short, 0, 4), (long, 0, ends[0])])
    got = attend(backend, 0, [(short, 4, 5), (long, *ends)])
    torch.testing.assert_close(got[0], short.expected(4, 5, None), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1], long.expected(*ends, None), rtol=1e-5, atol=1e-5)


def test_a_sequence_in_ruins_harms_no_neighbour() -> None:
    healthy, ruined = histories([20, 20], seed=5)
    ruined.q[:], ruined.k[:], ruined.v[:] = torch.nan, torch.nan, torch.nan
    backend = create_attention("reference", spec(None), NUM_BLOCKS, torch.float32)
    attend(backend, 0, [(healthy, 0, 19), (ruined, 0, 19)])
    found, lost = attend(backend, 0, [(healthy, 19, 20), (ruined, 19, 20)])
    torch.testing.assert_close(found, healthy.expected(19, 20, None), rtol=1e-5, atol=1e-5)
    assert lost.isnan().all()
