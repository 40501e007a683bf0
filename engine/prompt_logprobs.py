"""Log probabilities of a prompt's own tokens: which positions of a step score them, and to whom they belong.

Position p of a prompt scores the token at p + 1. Knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.ranking import Ranking
from engine.records import SampledRow, ScheduledSeq, TokenLogprob

NOT_FINITE = "the model's logits for its prompt are not finite"


def targets(seqs: Iterable[ScheduledSeq]) -> list[int]:
    """The tokens that the scored positions of `seqs` score, in order."""
    return [seq.token_ids[position + 1] for seq in seqs for position in seq.scored]


def most_wanted(seqs: Iterable[ScheduledSeq]) -> int:
    """Of the likeliest tokens, how many a scored position is asked for at most."""
    return max((seq.sampling.prompt_logprobs or 0 for seq in seqs if seq.scored), default=0)


def with_prompts(
    rows: Iterable[SampledRow], seqs: Iterable[ScheduledSeq], ranking: Ranking
) -> tuple[SampledRow, ...]:
    """What was sampled, and beside it what `ranking` says of the scored positions of `seqs`, in order."""
    by_seq, first = {row.seq_id: row for row in rows}, 0
    for seq in seqs:
        if seq.scored:
            end = first + len(seq.scored)
            scores = _scores(seq, ranking, range(first, end))
            row = by_seq.get(seq.seq_id, SampledRow(seq.seq_id))
            if any(score.logprob != score.logprob for score in scores):
                row = SampledRow(seq.seq_id, error=NOT_FINITE)
            by_seq[seq.seq_id] = replace(row, prompt_logprobs=scores)
            first = end
    return tuple(by_seq.values())


def _scores(seq: ScheduledSeq, ranking: Ranking, rows: range) -> tuple[TokenLogprob, ...]:
    wanted = seq.sampling.prompt_logprobs or 0
    return tuple(
        ranking.of(row, seq.token_ids[position + 1], wanted)
        for row, position in zip(rows, seq.scored, strict=True)
    )
