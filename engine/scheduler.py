"""Decides what each step computes: continuous batching of prompt chunks and decodes in one token budget.

Pure Python over ids. Knows no tensors, no sampling and no clock. A step costs time in the number of
running sequences; waiting and finished ones cost nothing.
"""

from __future__ import annotations

from bisect import insort

from engine.blocks import BlockPool
from engine.budget import TokenBudget
from engine.config import BLOCK_SIZE
from engine.errors import IntegrityError
from engine.limits import Limits, SchedulerCounters
from engine.policies import claim, places, room
from engine.prefix_search import Prefix
from engine.records import ScheduledSeq, StepPlan
from engine.schedule_integrity import check_queues
from engine.sequence import Sequence
from engine.slot_turns import SlotTurns
from engine.swap import SwapSpace
from engine.tables import BlockTables
from engine.victims import can_promise, choose_victim, promised_blocks
from engine.waiting import WaitingQueue


class Scheduler:
    """Owns which sequences wait and which run, and the blocks of those that run.

    running is kept in order: lower priority value first, then earlier arrival. The beams of a search are
    admitted and preempted together; one with nothing pending waits, running, for the others.

    A running sequence whose adapter has no slot is parked: it keeps its blocks and its place and is not
    computed. A waiting one that would begin with such an adapter is looked past. Among all others the order
    is strict: who was the first of them and found no tokens, places or blocks left is not overtaken any
    more, also while its adapter is out of its slot. So whoever waits for more than a slot waits for those
    that run and those before it, and for nobody else.
    """

    def __init__(
        self,
        limits: Limits,
        pool: BlockPool,
        swap: SwapSpace,
        turns: SlotTurns,
        counters: SchedulerCounters,
        *,
        prefix_cache: bool,
    ) -> None:
        self.running: list[Sequence] = []
        self.waiting = WaitingQueue()
        self.counters = counters
        self._limits = limits
        self._tables = BlockTables(pool, prefix_cache=prefix_cache)
        self.pool = pool
        self.swap = swap
        self.turns = turns
        self._planned = False

    def add(self, seq: Sequence) -> None:
        """Queue a sequence that, alone, fits the pool."""
        self.turns.enter(seq.adapter)
        self.waiting.add(seq)

    def fork(self, seq: Sequence, parent: Sequence) -> None:
        """Run a new sequence on the blocks it has in common with a running one, or queue it."""
        common = self._tables.common_tokens(seq, parent) if parent.state == "running" else 0
        limits = self._limits
        cost = claim(limits.policy, seq) - seq.need.lasting(common // BLOCK_SIZE)
        fits = cost <= room(limits.policy, self.pool, self.running, limits.watermark_blocks)
        if common and fits and places([seq]) <= limits.max_num_seqs - places(self.running):
            self.turns.enter(seq.adapter)
            self._tables.share(seq, parent, common)
            self._enter(seq)
        else:
            self.add(seq)

    def branch(self, seq: Sequence, parent: Sequence) -> None:
        """Run a new beam, whose place was kept, on all that a running one has computed."""
        self.turns.enter(seq.adapter)
        self._tables.share(seq, parent, parent.num_computed)
        self._run(seq)

    def schedule(self) -> StepPlan:
        """The next step: every running sequence that can advances by a token or more, then others join."""
        if self._planned:
            self.swap.settle()
        self.turns.begin_step(self._wanted)
        budget = TokenBudget(self._limits.max_batched_tokens, self._limits.weights)
        shares: dict[Sequence, int] = {}
        preempted_before = self.counters.preemptions
        order = [seq for seq in self.running if seq.pending]
        if self.turns.is_short:
            order = [seq for seq in order if not self._is_parked(seq)]
        for place, seq in enumerate(order):
            if seq.state == "running":
                count = budget.take(seq.stretch, seq.num_computed, reserve=len(order) - place - 1)
                shares[seq] = count
                self._make_room(seq, count, shares, budget)
        if self.counters.preemptions == preempted_before:
            self._admit(shares, budget)
        return self._plan(shares, out_of_tokens=budget.left < 1)

    def _plan(self, shares: dict[Sequence, int], *, out_of_tokens: bool) -> StepPlan:
        if self.turns.is_short:
            computed = {seq.adapter_next for seq in shares}
            self.turns.end_step(self.turns.bound if out_of_tokens else computed)
        self._planned = bool(shares)
        if not shares:
            # Nothing will run: copies and changes wait for the next step that does, and keep their order.
            return StepPlan(())
        return StepPlan(
            tuple(self._share(seq, count) for seq, count in shares.items()),
            self._tables.take_copies(),
            self.turns.take_changes(),
        )

    def _wanted(self) -> list[str]:
        """Adapters that something is to be computed with: of those that run, then of those that wait."""
        wanted = [*(seq.adapter_next for seq in self.running), *self.waiting.lines]
        return [digest for digest in wanted if digest is not None]

    def _is_parked(self, seq: Sequence) -> bool:
        return not self.turns.holds(seq.adapter_next)

    def _make_room(self, seq: Sequence, count: int, shares: dict[Sequence, int], budget: TokenBudget) -> None:
        """Grow the table of `seq`, preempting others, or itself when it is the last in order."""
        while seq.state == "running" and not self._tables.grow(seq, count):
            victim = choose_victim(self.running, self._is_parked)
            if victim is None:
                raise IntegrityError(f"sequence {seq.seq_id}: blocks promised to it are not there")
            for beam in victim.companions:
                budget.refund(shares.pop(beam, 0))
                self._preempt(beam)

    def _preempt(self, victim: Sequence) -> None:
        self.running.remove(victim)
        if self.swap.is_worth(victim):
            self._tables.copy_out(victim, self.swap.take(victim))
            self.counters.swaps += 1
        self._tables.free(victim)
        victim.state = "waiting"
        victim.preemptions += 1
        self.waiting.add(victim)
        self.counters.preemptions += 1

    def _admit(self, shares: dict[Sequence, int], budget: TokenBudget) -> None:
        """Let waiting sequences run, strictly in order, while tokens, places and blocks last."""
        if not self.waiting:
            return
        limits = self._limits
        left = room(limits.policy, self.pool, self.running, limits.watermark_blocks)
        lines = (None, *self.turns.bound) if self.turns.is_short else self.waiting.lines
        while (first := self.waiting.first_of(lines)) is not None:
            party = [first, *(beam for beam in first.companions if beam is not first)]
            free_places = limits.max_num_seqs - places(self.running)
            if budget.left < len(party) or free_places < places(party):
                self.waiting.turn_away(first)
                return
            head = self._tables.find_prefix(first)
            # What a later one of the party begins with may be gone when it starts: only the first saves.
            cost = sum(claim(limits.policy, seq) for seq in party) - self._tables.saving(first, head)
            # Nobody is there to wait for where nothing runs: then what the forks will need is not kept.
            if (cost > left and self.running) or not can_promise(party, self.running, self.pool.num_blocks):
                self.waiting.turn_away(first)
                return
            left -= cost
            for place, seq in enumerate(party):
                self._start(seq, self._tables.find_prefix(seq) if place else head)
                if seq.pending and not self._is_parked(seq):
                    later = len(party) - place - 1
                    shares[seq] = budget.take(seq.stretch, seq.num_computed, reserve=later)
                    self._tables.grow(seq, shares[seq])

    def _start(self, seq: Sequence, prefix: Prefix) -> None:
        self.waiting.remove(seq)
        if seq.num_saved > prefix.num_tokens:
            self._tables.copy_in(seq, seq.num_saved, self.swap.give_back(seq))
        else:
            self.swap.drop(seq)
            self._tables.begin(seq, prefix)
        self._enter(seq)

    def _run(self, seq: Sequence) -> None:
        seq.state = "running"
        insort(self.running, seq, key=lambda other: other.order)

    def _enter(self, seq: Sequence) -> None:
        self._run(seq)
        self.counters.admissions += 1
        if seq.preemptions == 0:
            seq.cached_tokens = seq.num_computed
            self.counters.prefix_queries += 0 if seq.unscored else seq.prompt_len
            self.counters.prefix_hits += seq.cached_tokens

    def advance(self, seq: Sequence, count: int) -> None:
        """A step has computed `count` more tokens of a running sequence."""
        self._tables.advance(seq, count)

    def remove(self, seq: Sequence, *, forget: bool = False) -> None:
        """End a live sequence in any phase: its blocks are free before the next step.

        forget: its step failed, so no block of its own may serve as a cached prefix.
        """
        if seq.state == "running":
            self.running.remove(seq)
            self._tables.free(seq, forget=forget)
        else:
            self.waiting.remove(seq)
            self.swap.drop(seq)
        self.turns.leave(seq.adapter)
        seq.state = "finished"

    def distrust(self, plan: StepPlan) -> list[Sequence]:
        """The step failed: what it should have copied, saved or bound to a slot may not be there.

        Returns those running that cannot go on: whom it computed, and who waits for its adapter's slot with
        a block that it should have filled with a copy.
        """
        self.swap.distrust()
        self.turns.distrust()
        doubtful = self._tables.distrust(plan.copies)
        computed = {share.seq_id for share in plan.seqs}
        return [seq for seq in self.running if seq.seq_id in computed or not doubtful.isdisjoint(seq.held)]

    def check_integrity(self) -> None:
        """Raise IntegrityError unless states, order, tables and pool agree."""
        check_queues(self.running, self.waiting)
        if places(self.running) > self._limits.max_num_seqs:
            raise IntegrityError("more sequences run, or have a place kept, than may run at once")
        if promised_blocks(self.running) > self.pool.num_blocks:
            raise IntegrityError("more blocks are promised to protected sequences than the pool has")
        self._tables.check_integrity(self.running)
        self.swap.check_integrity(self.waiting)
        self.turns.check_integrity(seq.adapter for seq in (*self.running, *self.waiting))

    def _share(self, seq: Sequence, count: int) -> ScheduledSeq:
        return ScheduledSeq(
            seq_id=seq.seq_id,
            token_ids=seq.token_ids,
            prompt_len=seq.prompt_len,
            start=seq.num_computed,
            count=count,
            block_table=seq.table,
            adapter_slot=self.turns.slot_of(seq.adapter_next),
            samples=count == seq.pending,
            sampling=seq.sampling,
            seed=seq.seed,
            banned_ids=seq.banned_ids,
            allowed=seq.allowed,
            guide=seq.guide,
            num_candidates=seq.num_candidates,
            scored=seq.scored_by(count),
        )
