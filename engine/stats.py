"""What the engine counts about its steps. Knows no requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import BLOCK_SIZE
from engine.ports import ModelRunner
from engine.records import EngineStats, GroupStats, Spread, StepPlan
from engine.scheduler import Scheduler


@dataclass(slots=True)
class SpreadCounter:
    """Collects a Spread."""

    counts: list[int] = field(default_factory=list)
    total: int = 0

    def add(self, size: int) -> None:
        """Count one occurrence of `size`, at least 1."""
        place = (size - 1).bit_length()
        self.counts.extend([0] * (place + 1 - len(self.counts)))
        self.counts[place] += 1
        self.total += size

    def spread(self) -> Spread:
        return Spread(tuple(self.counts), self.total)


@dataclass(slots=True)
class StepCounters:
    """Counted since the start; see EngineStats."""

    steps: int = 0
    failed_steps: int = 0
    consecutive_failures: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    last_batch_tokens: int = 0
    last_batch_seqs: int = 0
    seqs_by_step: SpreadCounter = field(default_factory=SpreadCounter)
    tokens_by_step: SpreadCounter = field(default_factory=SpreadCounter)

    def succeeded(self, plan: StepPlan) -> None:
        self.steps += 1
        self.consecutive_failures = 0
        self.last_batch_tokens = plan.num_tokens
        self.last_batch_seqs = len(plan.seqs)
        self.seqs_by_step.add(self.last_batch_seqs)
        self.tokens_by_step.add(self.last_batch_tokens)

    def failed(self) -> None:
        self.failed_steps += 1
        self.consecutive_failures += 1

    def sampled(self, *, first_of_prompt: int | None) -> None:
        """One token was generated; the first one of a request completes its prompt's tokens."""
        self.generated_tokens += 1
        if first_of_prompt is not None:
            self.prompt_tokens += first_of_prompt


def snapshot(steps: StepCounters, scheduler: Scheduler, runner: ModelRunner, adapters: int) -> EngineStats:
    """The figures of this moment; costs no more for those that wait or have finished. adapters: added."""
    pool, swap, turns = scheduler.pool, scheduler.swap, scheduler.turns
    live = sum(seq.num_computed for seq in scheduler.running)
    return EngineStats(
        running=len(scheduler.running),
        waiting=len(scheduler.waiting),
        blocks_total=pool.num_blocks,
        blocks_free=pool.num_free,
        blocks_cached=pool.num_idle,
        groups=tuple(map(GroupStats, runner.windows, pool.used)),
        memory=runner.memory,
        kv_bytes_total=pool.num_blocks * runner.block_bytes,
        kv_bytes_used=(pool.num_blocks - pool.num_free) * runner.block_bytes,
        live_tokens=live,
        reserved_tokens=sum(seq.rows for seq in scheduler.running) * BLOCK_SIZE - live,
        admissions=scheduler.counters.admissions,
        evictions=pool.counters.evictions,
        copies_on_write=pool.counters.copies_on_write,
        prefix_copies=pool.counters.prefix_copies,
        window_frees=pool.counters.window_frees,
        swaps=scheduler.counters.swaps,
        host_blocks_total=swap.num_blocks,
        host_blocks_free=swap.num_free,
        prefix_queries=scheduler.counters.prefix_queries,
        prefix_hits=scheduler.counters.prefix_hits,
        preemptions=scheduler.counters.preemptions,
        steps=steps.steps,
        failed_steps=steps.failed_steps,
        consecutive_failures=steps.consecutive_failures,
        prompt_tokens=steps.prompt_tokens,
        generated_tokens=steps.generated_tokens,
        last_batch_tokens=steps.last_batch_tokens,
        last_batch_seqs=steps.last_batch_seqs,
        seqs_by_step=steps.seqs_by_step.spread(),
        tokens_by_step=steps.tokens_by_step.spread(),
        adapters=adapters,
        adapters_bound=len(turns.bound),
        slot_changes=turns.counters.changes,
        parked=sum(not turns.holds(seq.adapter_next) for seq in scheduler.running),
        longest_slot_wait_steps=turns.counters.longest_steps,
        longest_slot_wait_s=turns.counters.longest_s,
    )
