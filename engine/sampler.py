"""From logits to tokens, for all rows of a step at once.

Order: end tokens banned before min_tokens, penalties, temperature, min_p, top_k, top_p, draw. The
logprobs reported are of the raw logits, before any of these. A draw takes one uniform number made from
(seed, index of the output) and the row's own distribution: which rows stand beside it never matters.
Rows that just take the likeliest token are not looked at here: the model has found it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.candidates import top_candidates
from engine.filters import keep_min_p, keep_top_k, keep_top_p
from engine.records import SampledRow, ScheduledSeq, TokenLogprob
from engine.sampling import SamplingParams
from engine.scores import Scores

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: the division would leave float32."""

_MASK = (1 << 64) - 1


def sample(scores: Scores, seqs: Sequence[ScheduledSeq]) -> list[SampledRow]:
    """Scores of S sequences -> one row for each of them, in order.

    A row whose logits are not finite, or that has no token left to choose, carries an error of its own.
    """
    tokens = list(scores.best)
    rows = [row for row, seq in enumerate(seqs) if not _takes_best(seq) and tokens[row] >= 0]
    if rows:
        for row, token in zip(rows, _chosen(scores.logits[rows], [seqs[row] for row in rows]), strict=True):
            tokens[row] = token
    logprobs = token_logprobs(scores.logits, tokens, seqs)
    candidates = top_candidates(scores.logits, seqs)
    return [
        SampledRow(seq.seq_id, error="the model's logits are not finite or leave no token to choose")
        if token < 0
        else SampledRow(seq.seq_id, token, logprobs.get(row), candidates=candidates.get(row, ()))
        for row, (seq, token) in enumerate(zip(seqs, tokens, strict=True))
    ]


def _takes_best(seq: ScheduledSeq) -> bool:
    """Whether the likeliest token is the one to take, whatever it is."""
    greedy = seq.sampling.temperature < GREEDY_BELOW
    return greedy and not seq.banned_ids and not _has_penalty(seq.sampling)


def _chosen(logits: Tensor, seqs: Sequence[ScheduledSeq]) -> list[int]:
    """Token of each row of finite logits [S, vocab], -1 where no token is left to choose."""
    adjusted = adjust(logits, seqs)
    sound = adjusted.amax(dim=-1).isfinite()
    return torch.where(sound, choose(adjusted, seqs), -1).tolist()


def adjust(logits: Tensor, seqs: Sequence[ScheduledSeq]) -> Tensor:
    """Logits with penalties applied and banned tokens at -inf; the same tensor where no row asks for it."""
    rows = [row for row, seq in enumerate(seqs) if seq.banned_ids or _has_penalty(seq.sampling)]
    if not rows:
        return logits
    adjusted = logits.clone()
    for row in rows:
        seq = seqs[row]
        if _has_penalty(seq.sampling):
            adjusted[row] = _penalised(adjusted[row], seq)
        if seq.banned_ids:
            adjusted[row, [token for token in seq.banned_ids if token < logits.shape[-1]]] = -torch.inf
    return adjusted


def choose(logits: Tensor, seqs: Sequence[ScheduledSeq]) -> Tensor:
    """Token of each row, int64 [S]: the likeliest at temperature 0, a draw elsewhere."""
    tokens = torch.from_numpy(logits.numpy().argmax(axis=-1))  # torch's own takes six times as long
    drawn = [row for row, seq in enumerate(seqs) if seq.sampling.temperature >= GREEDY_BELOW]
    if drawn:
        chosen = [seqs[row] for row in drawn]
        params = [seq.sampling for seq in chosen]
        uniforms = [uniform(seq.seed, seq.num_outputs) for seq in chosen]
        tokens[drawn] = draw(filtered(logits[drawn], params), torch.tensor(uniforms, dtype=torch.float64))
    return tokens


def filtered(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Logits divided by temperature, tokens outside min_p, top_k and top_p at -inf; [rows, vocab]."""
    temperature = torch.tensor([p.temperature for p in params], dtype=torch.float32)
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / temperature[:, None]
    for wanted, value, keep in (
        ([p.min_p > 0 for p in params], [p.min_p for p in params], keep_min_p),
        ([0 < p.top_k < logits.shape[-1] for p in params], [float(p.top_k) for p in params], keep_top_k),
        ([p.top_p < 1 for p in params], [p.top_p for p in params], keep_top_p),
    ):
        rows = [row for row, yes in enumerate(wanted) if yes]
        if rows:
            part = scaled[rows]
            kept = keep(part, torch.tensor([value[row] for row in rows]))
            scaled[rows] = part.masked_fill(~kept, -torch.inf)
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
    logprobs = logits[rows].log_softmax(dim=-1)
    picked = [tokens[row] for row in rows]
    own = logprobs.gather(1, torch.tensor(picked)[:, None]).squeeze(1).tolist()
    counts = [seqs[row].sampling.logprobs or 0 for row in rows]
    values, ids = logprobs.topk(min(max(counts), logits.shape[-1]), dim=-1)
    found: dict[int, TokenLogprob] = {}
    for row, token, logprob, count, top, top_ids in zip(
        rows, picked, own, counts, values.tolist(), ids.tolist(), strict=True
    ):
        pairs = tuple(zip(top_ids[:count], top[:count], strict=True))
        found[row] = TokenLogprob(token, logprob, pairs)
    return found


def _has_penalty(params: SamplingParams) -> bool:
    return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0)


def _penalised(logits: Tensor, seq: ScheduledSeq) -> Tensor:
    """One row [vocab]: repetition over prompt and output, presence and frequency over output."""
    params = seq.sampling
    if params.repetition_penalty != 1.0:
        seen = _counts(seq.token_ids, logits) > 0
        penalty = params.repetition_penalty
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    counts = _counts(seq.token_ids[seq.prompt_len :], logits)
    return logits - params.presence_penalty * (counts > 0) - params.frequency_penalty * counts


def _counts(token_ids: Sequence[int], logits: Tensor) -> Tensor:
    """How often each token of the vocabulary occurs; int64 [vocab]."""
    return torch.bincount(torch.tensor(token_ids, dtype=torch.int64), minlength=logits.shape[-1])


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
