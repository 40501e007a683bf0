"""What a model makes of a step's sequences: logits and likeliest tokens, and what it says of prompts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.ranking import NOTHING_SCORED, Ranking


@dataclass(frozen=True, slots=True)
class Scores:
    """Of S sequences, in order.

    logits: float32 [S, vocab]; the next step may overwrite it.
    best: S token ids: the highest logit's, the lowest id of several; -1 where a logit is not finite.
    prompts: of the positions that are scored, of all sequences, in order.
    """

    logits: Tensor
    best: list[int]
    prompts: Ranking = NOTHING_SCORED


def ranked(logits: Tensor, prompts: Ranking = NOTHING_SCORED) -> Scores:
    """Scores of logits float32 [S, vocab] that came without their best tokens."""
    # torch's argmax takes six times as long as NumPy's. Both ends of a row are finite where all of it is.
    best = logits.numpy().argmax(axis=-1).tolist()
    sound = (logits.amax(dim=-1).isfinite() & logits.amin(dim=-1).isfinite()).tolist()
    return Scores(logits, [token if fine else -1 for token, fine in zip(best, sound, strict=True)], prompts)
