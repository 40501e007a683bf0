"""Whether the queues of a scheduler are in order. For tests, and for the moment when an engine is idle."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered

from engine.errors import IntegrityError
from engine.sequence import Sequence


def check_queues(running: Ordered[Sequence], waiting: Iterable[Sequence]) -> None:
    """Raise IntegrityError unless states and order agree with the lists, and beams stay together."""
    waiting = list(waiting)
    for name, seqs in (("running", running), ("waiting", waiting)):
        if any(seq.state != name for seq in seqs):
            raise IntegrityError(f"a sequence in the {name} list is in another state")
        if [seq.order for seq in seqs] != sorted(seq.order for seq in seqs):
            raise IntegrityError(f"the {name} list is out of order")
    if any(seq.table or seq.num_computed for seq in waiting):
        raise IntegrityError("a waiting sequence holds blocks")
    for seq in (*running, *waiting):
        if any(beam.state != seq.state for beam in seq.companions):
            raise IntegrityError(f"sequence {seq.seq_id}: beams of one search are in different states")
