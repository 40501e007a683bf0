"""How much of pool and places an admission may count on: the two policies, and the watermark above both.

max_utilization       a newcomer needs its present tokens' blocks and one more row to go on; what it grows
                      to later may cost somebody a preemption
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
    own = seq.need.most(_rows(policy, seq, len(seq.token_ids)), seq.num_computed)
    held = seq.need.held(seq.rows, seq.num_computed)
    return max(0, own - held) + seq.forks_due * _claim_of_fork(policy, seq)


def _claim_of_fork(policy: Policy, seq: Sequence) -> int:
    """Blocks that one sequence forked off at the end of the prompt takes beside those of the prompt."""
    shared = seq.need.lasting(seq.prompt_len // BLOCK_SIZE)
    return max(0, seq.need.most(_rows(policy, seq, seq.prompt_len)) - shared)


def _rows(policy: Policy, seq: Sequence, num_tokens: int) -> int:
    """Rows that are set aside for a sequence that has come to `num_tokens` tokens."""
    return seq.max_rows if policy == "guaranteed_no_evict" else min(blocks_for(num_tokens) + 1, seq.max_rows)


def places(seqs: Iterable[Sequence]) -> int:
    """Places among the running that sequences take, those of their forks included."""
    return sum(1 + seq.forks_due for seq in seqs)


def room(policy: Policy, pool: BlockPool, running: Iterable[Sequence], watermark: int) -> int:
    """Free blocks that a newcomer may claim.

    The watermark stays free while anybody runs; for the first one the whole pool is there. Who shares
    blocks it is about to write may need copies of them. Blocks that several hold until a window leaves them
    are counted for each: behind them each will have blocks of its own.
    """
    running = list(running)
    claims = sum(claim(policy, seq) + _shared_open(pool, seq) for seq in running)
    passing = sum(seq.need.passing(seq.rows, seq.num_computed) for seq in running)
    used = sum(pool.used[group] for group in running[0].need.bounded) if running else 0
    return pool.num_free - claims - max(0, passing - used) - (watermark if running else 0)


def _shared_open(pool: BlockPool, seq: Sequence) -> int:
    return sum(not pool.is_writable(seq.table[place]) for place in seq.open_places)
