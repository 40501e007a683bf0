"""Puts the parts of an engine together from its settings and its runner. Decides nothing."""

from __future__ import annotations

from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.ports import ModelRunner
from engine.scheduler import Limits, Scheduler, SchedulerCounters
from engine.swap import SwapCosts, SwapSpace


def open_runner(config: EngineConfig) -> ModelRunner:
    """The real runner."""
    # Torch comes in here, so that an engine on another runner, and its tests, do without it.
    from engine.runner import build_runner

    return build_runner(config)


def make_scheduler(config: EngineConfig, runner: ModelRunner, counters: SchedulerCounters) -> Scheduler:
    """A scheduler over an empty pool of the runner's blocks."""
    watermark = int(config.watermark * runner.num_blocks)
    limits = Limits(config.max_num_seqs, config.max_batched_tokens, config.policy, watermark)
    costs = SwapCosts(runner.block_bytes, config.link_bytes_per_s, runner.token_flops, config.flops_per_s)
    swap = SwapSpace(runner.num_blocks, runner.num_host_blocks, costs)
    pool = BlockPool(runner.num_blocks, counters.blocks)
    return Scheduler(limits, pool, swap, counters, prefix_cache=config.prefix_cache, window=runner.window)
