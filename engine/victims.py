"""Whom to preempt when blocks run out, and for whom that is over.

The victim is the last in order (lowest priority, newest) that is not protected. A sequence preempted
MAX_PREEMPTIONS times is protected: it comes back only when all blocks it may ever need can be promised
to it beside those promised to other protected ones. So protected sequences can always grow, no one is
preempted more often than that, and everything ends. The beams of a search count as one in all of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered

from engine.sequence import Sequence

MAX_PREEMPTIONS = 3


def is_protected(seq: Sequence) -> bool:
    return seq.preemptions >= MAX_PREEMPTIONS


def choose_victim(running: Ordered[Sequence]) -> Sequence | None:
    """The last of `running`, given in order, that may be preempted."""
    return next((seq for seq in reversed(running) if not is_protected(seq)), None)


def promised_blocks(running: Iterable[Sequence]) -> int:
    """Blocks that protected sequences hold or may still claim, with those of beams yet to come."""
    return sum(seq.max_blocks * (1 + _beams_due(seq)) for seq in running if is_protected(seq))


def _beams_due(seq: Sequence) -> int:
    # Other forks are not protected as they come, and wait where there is no room.
    return 0 if seq.party is None else seq.forks_due
