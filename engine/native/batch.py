"""A step's sequences as the arrays that the library reads. Checks them: a wrong number would reach outside.

All numbers of a step lie in one array, part after part, so that a step costs one conversion.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from engine.config import blocks_for
from engine.native.library import Batch
from engine.prompt_logprobs import targets
from engine.records import ScheduledSeq

_INT_BYTES = 4


class StepArrays:
    """The numbers of one step; `batch` points into them and is valid while this object lives.

    batch: all of it but what the library shall fill. samples: sequences whose logits are wanted. scored:
    positions that are.
    """

    def __init__(
        self,
        seqs: Sequence[ScheduledSeq],
        *,
        vocab: int,
        groups: int,
        num_blocks: int,
        positions: int | None,
    ) -> None:
        """Raises ValueError for sequences that do not fit a vocabulary and a cache of these sizes.

        positions: those the model has learned, None where it can tell any.
        """
        starts = [seq.start for seq in seqs]
        counts = [seq.count for seq in seqs]
        wants = [seq.samples for seq in seqs]
        slots = [seq.adapter_slot for seq in seqs]
        firsts = [seq.scored.start - seq.start for seq in seqs]
        lengths = [len(seq.scored) for seq in seqs]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        block_counts = [blocks_for(end) * groups for end in ends]
        tokens: list[int] = []
        blocks: list[int] = []
        for seq, end, held in zip(seqs, ends, block_counts, strict=True):
            tokens += seq.token_ids[seq.start : end]
            blocks += seq.block_table[:held]
        scored = targets(seqs)
        _check_steps(seqs)
        if len(tokens) != sum(counts):
            raise ValueError("a sequence has fewer tokens than the step shall compute")
        if len(blocks) != sum(block_counts):
            raise ValueError("a block table is shorter than its sequence")
        if positions is not None:
            _check_range("positions", [end - 1 for end in ends], positions)
        _check_range("token_ids", [*tokens, *scored], vocab)
        _check_range("blocks", blocks, num_blocks)
        self.samples, self.scored = sum(wants), len(scored)
        heads = [*starts, *counts, *block_counts, *slots, *wants, *firsts, *lengths]
        self._numbers = array("i", [*heads, *tokens, *scored, *blocks])
        self.batch = _laid_out(self._numbers.buffer_info()[0], len(seqs), len(tokens), len(scored))


def _laid_out(first: int, sequences: int, tokens: int, scored: int) -> Batch:
    """Where the parts are of the numbers that begin at `first`."""
    part = sequences * _INT_BYTES
    behind = first + 7 * part
    return Batch(
        sequences=sequences,
        starts=first,
        counts=first + part,
        block_counts=first + 2 * part,
        slots=first + 3 * part,
        samples=first + 4 * part,
        score_firsts=first + 5 * part,
        score_counts=first + 6 * part,
        token_ids=behind,
        targets=behind + tokens * _INT_BYTES,
        blocks=behind + (tokens + scored) * _INT_BYTES,
    )


def _check_steps(seqs: Sequence[ScheduledSeq]) -> None:
    if any(seq.count < 1 or seq.start < 0 for seq in seqs):
        raise ValueError("a sequence of a step computes at least one token, from position 0 on")
    if not all(_scores_own(seq) for seq in seqs if seq.scored):
        raise ValueError("a position is scored that the step does not compute, or samples from")


def _scores_own(seq: ScheduledSeq) -> bool:
    end = seq.start + seq.count - seq.samples
    return seq.start <= seq.scored.start and seq.scored.stop <= min(end, len(seq.token_ids) - 1)


def _check_range(name: str, values: list[int], limit: int) -> None:
    low, high = min(values), max(values)
    if low < 0 or high >= limit:
        raise ValueError(f"{name} lie in {low} .. {high}; the model has 0 .. {limit - 1}")
