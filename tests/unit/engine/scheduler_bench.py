"""A scheduler driven by hand, each of its plans checked."""

from __future__ import annotations

from typing import Any

from engine.adapters import AddedAdapters
from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE, blocks_for
from engine.fake_runner import FakeWeights, FixedCosts
from engine.limits import Limits, SchedulerCounters
from engine.records import Request, SamplingParams, StepPlan
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.slot_turns import SlotTurns
from engine.swap import SwapSpace


class Bench:
    """A scheduler whose sequences generate the token 1 until their length is reached."""

    def __init__(
        self,
        num_blocks: int = 64,
        max_num_seqs: int = 8,
        max_batched_tokens: int = 32,
        *,
        host_blocks: int = 0,
        adapter_slots: int = 1,
        **terms: Any,
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.limits = Limits(max_num_seqs, max_batched_tokens, **terms)
        swap = SwapSpace(num_blocks, host_blocks, FixedCosts())
        counters = SchedulerCounters()
        self.turns = turns = SlotTurns(adapter_slots, _Anything(), counters.slots)
        self.scheduler = Scheduler(self.limits, self.pool, swap, turns, counters, prefix_cache=True)
        self.seqs: list[Sequence] = []

    def add(
        self,
        prompt_len: int,
        max_tokens: int = 8,
        *,
        first: int | None = None,
        holds_from: int = 0,
        **more: Any,
    ) -> Sequence:
        """Prompts differ in their first token unless `first` is given. more: priority, adapter."""
        seq_id = len(self.seqs)
        prompt = (1000 + seq_id if first is None else first, *range(1, prompt_len))
        request = Request(str(seq_id), prompt, SamplingParams(max_tokens=max_tokens), **more)
        seq = Sequence(seq_id, request, max_tokens, frozenset(), 0, holds_from, 0.0)
        self.seqs.append(seq)
        self.scheduler.add(seq)
        return seq

    def fork(self, parent: Sequence, max_tokens: int = 8) -> Sequence:
        """A sequence whose prompt is all that its parent has by now."""
        request = Request(str(len(self.seqs)), tuple(parent.token_ids), SamplingParams(max_tokens=max_tokens))
        seq = Sequence(len(self.seqs), request, max_tokens, frozenset(), 0, 0, 0.0)
        self.seqs.append(seq)
        self.scheduler.fork(seq, parent)
        return seq

    def step(self) -> StepPlan:
        """Schedule, check, and apply as a runner without fault would."""
        plan = self.scheduler.schedule()
        self._check(plan)
        for share in plan.seqs:
            seq = self.seqs[share.seq_id]
            self.scheduler.advance(seq, share.count)
            if share.samples and seq.append(1, now=0.0) is not None:
                self.scheduler.remove(seq)
        self.scheduler.check_integrity()
        return plan

    def _check(self, plan: StepPlan) -> None:
        assert plan.num_tokens <= self.limits.max_batched_tokens
        assert len({share.seq_id for share in plan.seqs}) == len(plan.seqs) <= self.limits.max_num_seqs
        computed = {
            seq.seq_id for seq in self.scheduler.running if seq.adapter_next in (None, *self.turns.bound)
        }
        assert {share.seq_id for share in plan.seqs} == computed
        for share in plan.seqs:
            seq = self.seqs[share.seq_id]
            assert share.count >= 1
            assert share.adapter_slot == self.turns.bound.get(str(seq.adapter_next), 0)
            assert share.start >= seq.adapter_from or share.start + share.count <= seq.adapter_from
            assert len(share.block_table) >= blocks_for(share.start + share.count)
            assert all(
                self.pool.is_writable(block) for block in share.block_table[share.start // BLOCK_SIZE :]
            )
            assert share.samples == (share.start + share.count == len(share.token_ids))

    @property
    def live(self) -> list[Sequence]:
        return [seq for seq in self.seqs if seq.state != "finished"]


class _Anything(AddedAdapters):
    """Every digest names an adapter."""

    def get(self, digest: str) -> FakeWeights:
        return FakeWeights(digest)


def counts_of(plan: StepPlan) -> dict[int, int]:
    """Tokens to compute, by sequence."""
    return {share.seq_id: share.count for share in plan.seqs}
