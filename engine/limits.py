"""What a scheduler may do at most, and what it counts. Knows no sequences."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.blocks import BlockCounters
from engine.budget import TokenWeights
from engine.config import Policy
from engine.slot_turns import SlotCounters


@dataclass(frozen=True, slots=True)
class Limits:
    """Sequences that run at once, weighed tokens of a step (at least one for each), admission's terms."""

    max_num_seqs: int
    max_batched_tokens: int
    policy: Policy = "max_utilization"
    watermark_blocks: int = 0
    weights: TokenWeights = field(default_factory=TokenWeights)


@dataclass(slots=True)
class SchedulerCounters:
    """Counted since the start; admissions also of those preempted; lookups and hits are prompt tokens."""

    admissions: int = 0
    preemptions: int = 0
    swaps: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    blocks: BlockCounters = field(default_factory=BlockCounters)
    slots: SlotCounters = field(default_factory=SlotCounters)
