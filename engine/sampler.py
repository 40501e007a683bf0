"""From logits to tokens, row by row: what is made of one stays in the cache, of all together it would not.

Order: what engine.adjustment does, then temperature, min_p, top_k, top_p, draw. The logprobs reported are of
the raw logits, before any of these. A draw takes one uniform number made from (seed, index of the output)
and the row's own distribution: which rows stand beside it never matters.
Rows that just take the likeliest token are not looked at here: the model has found it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.adjustment import adjusted, is_shifted
from engine.candidates import top_candidates
from engine.filters import keep_min_p, keep_top_k, keep_top_p
from engine.ranking import rank
from engine.records import SampledRow, ScheduledSeq, TokenLogprob
from engine.sampling import SamplingParams
from engine.scores import Scores
from engine.token_mask import holds

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: the division would leave float32."""

_MASK = (1 << 64) - 1


def sample(scores: Scores, seqs: Sequence[ScheduledSeq]) -> list[SampledRow]:
    """Scores of S sequences -> one row for each of them, in order.

    A row whose logits are not finite, or that has no token left to choose, carries an error of its own.
    """
    tokens = list(scores.best)
    drawn = [row for row, seq in enumerate(seqs) if tokens[row] >= 0 and not takes_best(seq, tokens[row])]
    for row in drawn:
        tokens[row] = _chosen(scores.logits[row], seqs[row])
    return sampled_rows(scores, seqs, tokens, token_logprobs(scores.logits, tokens, seqs))


def sampled_rows(
    scores: Scores, seqs: Sequence[ScheduledSeq], tokens: Sequence[int], logprobs: Mapping[int, TokenLogprob]
) -> list[SampledRow]:
    """tokens: of each row, -1 where there is none. logprobs: by row, where they are asked for."""
    candidates = top_candidates(scores.logits, seqs)
    return [
        SampledRow(seq.seq_id, error="the model's logits are not finite or leave no token to choose")
        if token < 0
        else SampledRow(seq.seq_id, token, logprobs.get(row), candidates=candidates.get(row, ()))
        for row, (seq, token) in enumerate(zip(seqs, tokens, strict=True))
    ]


def takes_best(seq: ScheduledSeq, best: int) -> bool:
    """Whether the likeliest token of a row's logits, which are finite, is the one to take."""
    if seq.sampling.temperature >= GREEDY_BELOW or is_shifted(seq):
        return False
    return best not in seq.banned_ids and (seq.allowed is None or holds(seq.allowed, best))


def _chosen(logits: Tensor, seq: ScheduledSeq) -> int:
    """Token of one row of finite logits [vocab], -1 where no token is left to choose."""
    logits = adjusted(logits, seq)
    if not logits.amax().isfinite():
        return -1
    if seq.sampling.temperature < GREEDY_BELOW:
        return int(logits.numpy().argmax())  # torch's own takes six times as long
    uniforms = torch.tensor([uniform(seq.seed, seq.num_outputs)], dtype=torch.float64)
    return int(draw(filtered(logits[None], seq.sampling), uniforms))


def filtered(logits: Tensor, params: SamplingParams) -> Tensor:
    """Logits [rows, vocab] divided by temperature, tokens outside min_p, top_k and top_p at -inf."""
    scaled = logits - logits.amax(dim=-1, keepdim=True)
    scaled /= torch.tensor([params.temperature], dtype=torch.float32)
    if params.min_p > 0:
        scaled.masked_fill_(~keep_min_p(scaled, params.min_p), -torch.inf)
    if 0 < params.top_k < logits.shape[-1]:
        scaled.masked_fill_(~keep_top_k(scaled, params.top_k), -torch.inf)
    if params.top_p < 1:
        scaled.masked_fill_(~keep_top_p(scaled, params.top_p), -torch.inf)
    return scaled


def draw(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative distribution at uniforms [rows] in [0, 1); int64 [rows]."""
    cumulative = logits.softmax(dim=-1).to(torch.float64).cumsum(dim=-1)
    total = cumulative[:, -1:]
    # Strictly below the total, so that the search always ends on a token of positive probability.
    target = torch.minimum(uniforms[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    found = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return found.clamp_(max=logits.shape[-1] - 1)


def uniform(seed: int, index: int) -> float:
    """Number in [0, 1) that depends on its two arguments alone (SplitMix64 over both)."""
    mixed = _mix((_mix(seed & _MASK) + (index + 1) * 0x9E3779B97F4A7C15) & _MASK)
    return (mixed >> 11) / (1 << 53)


def token_logprobs(
    logits: Tensor, tokens: Sequence[int], seqs: Sequence[ScheduledSeq]
) -> dict[int, TokenLogprob]:
    """By row, of those that asked for them and have a token: from the raw log-softmax."""
    rows = [row for row, seq in enumerate(seqs) if seq.sampling.logprobs is not None and tokens[row] >= 0]
    if not rows:
        return {}
    counts = [seqs[row].sampling.logprobs or 0 for row in rows]
    ranking = rank(logits[rows], [tokens[row] for row in rows], max(counts))
    return {row: ranking.of(place, tokens[row], counts[place]) for place, row in enumerate(rows)}


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
