"""What a beam may go on with: the likeliest next tokens of a row of logits. Knows no search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.ranking import likeliest_pairs
from engine.records import Candidates, ScheduledSeq


def top_candidates(logits: Tensor, seqs: Sequence[ScheduledSeq]) -> dict[int, Candidates]:
    """Of each row that wants candidates, by row: (token id, logprob), best first, lower ids before equals.

    logits: float32 [S, vocab]; the logprobs are of its log-softmax, banned tokens left out.
    """
    found: dict[int, Candidates] = {}
    for row, seq in enumerate(seqs):
        if seq.num_candidates:
            # Row by row: what a row gets may not depend on those beside it.
            logprobs = logits[row].log_softmax(dim=-1)
            if seq.banned_ids:
                logprobs[[token for token in seq.banned_ids if token < len(logprobs)]] = -torch.inf
            pairs = likeliest_pairs(logprobs.numpy(), seq.num_candidates)
            found[row] = tuple(pair for pair in pairs if pair[1] > -torch.inf)
    return found
