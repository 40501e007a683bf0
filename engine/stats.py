"""What the engine counts about its steps. Knows no requests."""

from __future__ import annotations

from dataclasses import dataclass

from engine.blocks import BlockPool
from engine.records import EngineStats, StepPlan
from engine.scheduler import Scheduler


@dataclass(slots=True)
class StepCounters:
    """Counted since the start; see EngineStats."""

    steps: int = 0
    failed_steps: int = 0
    consecutive_failures: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    last_batch_tokens: int = 0

    def succeeded(self, plan: StepPlan) -> None:
        self.steps += 1
        self.consecutive_failures = 0
        self.last_batch_tokens = plan.num_tokens

    def failed(self) -> None:
        self.failed_steps += 1
        self.consecutive_failures += 1

    def sampled(self, *, first_of_prompt: int | None) -> None:
        """One token was generated; the first one of a request completes its prompt's tokens."""
        self.generated_tokens += 1
        if first_of_prompt is not None:
            self.prompt_tokens += first_of_prompt


def snapshot(steps: StepCounters, scheduler: Scheduler, pool: BlockPool) -> EngineStats:
    """The figures of this moment; costs the same whatever is running or waiting."""
    return EngineStats(
        running=len(scheduler.running),
        waiting=len(scheduler.waiting),
        blocks_total=pool.num_blocks,
        blocks_free=pool.num_free,
        blocks_cached=pool.num_idle,
        prefix_queries=scheduler.counters.prefix_queries,
        prefix_hits=scheduler.counters.prefix_hits,
        preemptions=scheduler.counters.preemptions,
        steps=steps.steps,
        failed_steps=steps.failed_steps,
        consecutive_failures=steps.consecutive_failures,
        prompt_tokens=steps.prompt_tokens,
        generated_tokens=steps.generated_tokens,
        last_batch_tokens=steps.last_batch_tokens,
    )
