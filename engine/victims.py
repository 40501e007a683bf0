"""Whom to preempt when blocks run out, and for whom that is over.

The victim is the last in order (lowest priority, newest) that is not protected, and of those that are
parked, whose adapter waits for a slot, while there are such. A sequence preempted
MAX_PREEMPTIONS times is protected: it comes back only when all blocks it may ever need can be promised
to it beside those promised to other protected ones. So protected sequences can always grow, no one is
preempted more often than that, and everything ends. The beams of a search count as one in all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ordered

from engine.sequence import Sequence

MAX_PREEMPTIONS = 3


def is_protected(seq: Sequence) -> bool:
    return seq.preemptions >= MAX_PREEMPTIONS


def choose_victim(
    running: Ordered[Sequence], is_parked: Callable[[Sequence], bool] = lambda seq: False
) -> Sequence | None:
    """The last of `running`, given in order, that may be preempted, a parked one if there is any."""
    open_to_it = [seq for seq in reversed(running) if not is_protected(seq)]
    return next(filter(is_parked, open_to_it), next(iter(open_to_it), None))


def promised_blocks(running: Iterable[Sequence]) -> int:
    """Blocks that protected sequences hold or may still claim, with those of beams yet to come."""
    return sum(seq.max_blocks * (1 + _beams_due(seq)) for seq in running if is_protected(seq))


def can_promise(party: Iterable[Sequence], running: Iterable[Sequence], num_blocks: int) -> bool:
    """Whether all that protected ones of a party may need is there beside what was promised to others."""
    promised = promised_blocks(party)
    return not promised or promised_blocks(running) + promised <= num_blocks


def _beams_due(seq: Sequence) -> int:
    # Other forks are not protected as they come, and wait where there is no room.
    return 0 if seq.party is None else seq.forks_due
