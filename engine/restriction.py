"""Masks of a step's rows, joined just before tokens are drawn. Knows no logits.

A row whose mask is not ready is put off: it has no token in this step and is computed again in the next, so
nobody waits for it. Only where no row of a step has all it needs, the first that is ready is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import GuideFailed
from engine.guide import Guide
from engine.records import SampledRow, ScheduledSeq
from engine.token_mask import mask_of

Words = np.ndarray[tuple[int], np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class Restricted:
    """Rows as they are drawn from, and by seq_id what comes of those that are not drawn from."""

    seqs: tuple[ScheduledSeq, ...]
    undrawn: dict[int, SampledRow]

    def settle(self, drawn: Iterable[SampledRow]) -> tuple[SampledRow, ...]:
        """What has been drawn, but of those rows."""
        return tuple(self.undrawn.get(row.seq_id, row) for row in drawn)


def restricted(seqs: Sequence[ScheduledSeq]) -> Restricted:
    """The rows that sample, what each may sample narrowed to what its guide allows."""
    guides = [seq.guide for seq in seqs if seq.guide is not None]
    if not guides:
        return Restricted(tuple(seqs), {})
    if len(guides) == len(seqs):
        wait([guide.pending for guide in guides], return_when=FIRST_COMPLETED)
    undrawn: dict[int, SampledRow] = {}
    rows = list(seqs)
    for place, seq in enumerate(seqs):
        if seq.guide is None:
            continue
        if not seq.guide.pending.done():
            undrawn[seq.seq_id] = SampledRow(seq.seq_id, late=True)
            continue
        try:
            rows[place] = narrowed(seq, seq.guide)
        except GuideFailed as failure:
            undrawn[seq.seq_id] = SampledRow(seq.seq_id, error=str(failure))
    return Restricted(tuple(rows), undrawn)


def narrowed(seq: ScheduledSeq, guide: Guide) -> ScheduledSeq:
    """A row with all that its guide allows, waited for; where that is the end alone, the end is not banned.

    Raises GuideFailed.
    """
    mask, banned = guide.mask(), seq.banned_ids
    if banned and not _without(mask, guide.end_ids).any():
        banned = tuple(token_id for token_id in banned if token_id not in guide.end_ids)
    if seq.allowed is not None:
        own = np.frombuffer(seq.allowed, np.uint32)
        mask = (np.frombuffer(mask, np.uint32)[: len(own)] & own).tobytes()  # a guide's may be a word longer
    return replace(seq, allowed=mask, banned_ids=banned)


def _without(mask: bytes, token_ids: Iterable[int]) -> Words:
    """The words of a mask but for some tokens."""
    others = mask_of(token_ids, 8 * len(mask))
    return np.frombuffer(mask, np.uint32) & ~np.frombuffer(others, np.uint32)
