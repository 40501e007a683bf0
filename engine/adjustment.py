"""What a request changes in a row of logits before a token is drawn: who may be drawn, and how likely.

Order: banned tokens (end tokens before min_tokens, ends of bad words) and those that are not allowed go to
-inf, then logit_bias, then penalties. Rows are adjusted one by one, without a look at their neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.records import ScheduledSeq
from engine.sampling import SamplingParams
from engine.token_mask import tokens_of


def is_adjusted(seq: ScheduledSeq) -> bool:
    """Whether the row's logits are not those it is drawn from."""
    return bool(seq.banned_ids or seq.allowed is not None or is_shifted(seq))


def is_shifted(seq: ScheduledSeq) -> bool:
    """Whether tokens that may be drawn are more or less likely than the model has them."""
    return bool(seq.sampling.logit_bias or has_penalty(seq.sampling))


def adjusted(logits: Tensor, seq: ScheduledSeq) -> Tensor:
    """One row of logits, float32 [vocab], as it is drawn from; the same tensor where nothing changes it."""
    if not is_adjusted(seq):
        return logits
    logits = logits.clone()
    if seq.banned_ids:
        logits[[token for token in seq.banned_ids if token < len(logits)]] = -torch.inf
    if seq.allowed is not None:
        logits.masked_fill_(~torch.from_numpy(tokens_of(seq.allowed, len(logits))), -torch.inf)
    if seq.sampling.logit_bias:
        token_ids, values = zip(*seq.sampling.logit_bias, strict=True)
        logits[list(token_ids)] += torch.tensor(values)
    return _penalised(logits, seq) if has_penalty(seq.sampling) else logits


def has_penalty(params: SamplingParams) -> bool:
    """Whether what was said before makes tokens less or more likely."""
    return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0)


def _penalised(logits: Tensor, seq: ScheduledSeq) -> Tensor:
    """Repetition over prompt and output, presence and frequency over output."""
    params = seq.sampling
    if params.repetition_penalty != 1.0:
        seen = _counts(seq.token_ids, logits) > 0
        penalty = params.repetition_penalty
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    counts = _counts(seq.token_ids[seq.prompt_len :], logits)
    return logits - params.presence_penalty * (counts > 0) - params.frequency_penalty * counts


def _counts(token_ids: Sequence[int], logits: Tensor) -> Tensor:
    """How often each token of the vocabulary occurs; int64 [vocab]."""
    return torch.bincount(torch.tensor(token_ids, dtype=torch.int64), minlength=len(logits))
