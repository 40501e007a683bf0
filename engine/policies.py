"""How much of pool and places an admission may count on: the two policies, and the watermark above both.

max_utilization       a newcomer needs its present tokens' blocks and one more to go on; what it grows to
                      later may cost somebody a preemption
guaranteed_no_evict   a newcomer needs every block it may ever grow to, beside what was promised to the
                      others; nobody is preempted, fewer run at once

A sequence that others will be forked off claims their blocks, beside those they share, and their places.
Knows no tokens and no order.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE, Policy, blocks_for
from engine.sequence import Sequence


def claim(policy: Policy, seq: Sequence) -> int:
    """Blocks that are set aside for a sequence, and its forks, beyond those in its table."""
    present = blocks_for(len(seq.token_ids)) - seq.num_dropped + 1
    wanted = seq.max_blocks if policy == "guaranteed_no_evict" else min(present, seq.max_blocks)
    own = max(0, wanted - len(seq.table) + seq.num_dropped)
    return own + seq.forks_due * _claim_of_fork(policy, seq)


def _claim_of_fork(policy: Policy, seq: Sequence) -> int:
    """Blocks that one sequence forked off at the end of the prompt takes beside those of the prompt."""
    present = blocks_for(seq.prompt_len) + 1
    wanted = seq.max_blocks if policy == "guaranteed_no_evict" else min(present, seq.max_blocks)
    # Under a window some of the prompt will have left it by then.
    shared = seq.prompt_len // BLOCK_SIZE if seq.block_limit is None else 0
    return max(0, wanted - shared)


def places(seqs: Iterable[Sequence]) -> int:
    """Places among the running that sequences take, those of their forks included."""
    return sum(1 + seq.forks_due for seq in seqs)


def room(policy: Policy, pool: BlockPool, running: Iterable[Sequence], watermark: int) -> int:
    """Free blocks that a newcomer may claim.

    The watermark stays free while anybody runs; for the first one the whole pool is there. Who shares
    the block it is about to write may need a copy of it.
    """
    claims = [claim(policy, seq) + (not pool.is_writable(seq.open_block)) for seq in running]
    return pool.num_free - sum(claims) - (watermark if claims else 0)
