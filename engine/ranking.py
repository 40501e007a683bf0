"""What the raw log-softmax of a row of logits says of one token, and of the likeliest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.filters import reached_by
from engine.records import TokenLogprob

Floats = np.ndarray[tuple[int], np.dtype[np.float32]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Of R rows. A row that is not finite has no number as its logprob.

    logprobs, ranks: of the row's own token; 1 is the likeliest's rank, tokens as likely share one.
    top: of each row the likeliest, (token id, logprob), best first, lower ids before equals.
    """

    logprobs: list[float]
    ranks: list[int]
    top: list[list[tuple[int, float]]]

    def of(self, row: int, token_id: int, count: int) -> TokenLogprob:
        """What `row` says of its token, with the `count` likeliest."""
        return TokenLogprob(token_id, self.logprobs[row], tuple(self.top[row][:count]), self.ranks[row])


NOTHING_SCORED = Ranking([], [], [])


def rank(logits: Tensor, token_ids: Sequence[int], most: int) -> Ranking:
    """logits float32 [R, vocab], a token for each row, and how many of the likeliest are wanted at most."""
    logprobs = logits.log_softmax(dim=-1)
    own = logprobs.gather(1, torch.tensor(token_ids)[:, None])
    likelier = (logprobs > own).sum(dim=-1)
    top = [list(likeliest_pairs(row, most)) for row in logprobs.numpy()]
    return Ranking(own.squeeze(1).tolist(), (likelier + 1).tolist(), top)


def joined(rankings: Sequence[Ranking]) -> Ranking:
    """Their rows, one after another."""
    return Ranking(
        [value for each in rankings for value in each.logprobs],
        [value for each in rankings for value in each.ranks],
        [pairs for each in rankings for pairs in each.top],
    )


def likeliest_pairs(logprobs: Floats, count: int) -> Iterator[tuple[int, float]]:
    """(token id, logprob) of the `count` likeliest of a row, best first, lower ids before equals."""
    places = likeliest(logprobs, count)
    return zip(places.tolist(), logprobs[places].tolist(), strict=True)


def likeliest(values: Floats, count: int) -> Ints:
    """Places of the `count` highest of a row, best first, the lower place before equals."""
    count = min(count, len(values))
    if not count:
        return np.empty(0, np.int64)
    places = np.flatnonzero(values >= reached_by(values, count))
    found: Ints = places[np.argsort(-values[places], kind="stable")[:count]]
    return found
