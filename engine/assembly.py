"""Puts the parts of an engine together from its settings and its runner. Decides nothing."""

from __future__ import annotations

from engine.adapters import AddedAdapters
from engine.blocks import BlockPool
from engine.budget import TokenWeights
from engine.config import EngineConfig
from engine.costs import MeasuredCosts, RestoreCosts
from engine.limits import Limits, SchedulerCounters
from engine.ports import ModelRunner
from engine.scheduler import Scheduler
from engine.slot_turns import SlotTurns
from engine.swap import SwapSpace


def open_runner(config: EngineConfig) -> ModelRunner:
    """The real runner."""
    # Torch comes in here, so that an engine on another runner, and its tests, do without it.
    from engine.runner import build_runner

    return build_runner(config)


def measured_costs(runner: ModelRunner) -> RestoreCosts:
    """Costs of the runner's own copies and steps; copies blocks, whose contents are lost."""
    return MeasuredCosts(runner.block_seconds(), TokenWeights(runner.attention_balance))


def make_scheduler(
    config: EngineConfig,
    runner: ModelRunner,
    costs: RestoreCosts,
    added: AddedAdapters,
    counters: SchedulerCounters,
) -> Scheduler:
    """A scheduler over an empty pool of the runner's blocks, and its empty slots."""
    limits = Limits(
        config.max_num_seqs,
        config.max_batched_tokens,
        config.policy,
        watermark_blocks=int(config.watermark * runner.num_blocks),
        weights=TokenWeights(runner.attention_balance),
    )
    swap = SwapSpace(runner.num_blocks, runner.num_host_blocks, costs)
    pool = BlockPool(runner.num_blocks, counters.blocks, num_groups=len(runner.windows))
    turns = SlotTurns(config.adapter_slots, added, counters.slots)
    return Scheduler(limits, pool, swap, turns, counters, prefix_cache=config.prefix_cache)
