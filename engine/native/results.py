"""Memory that the library fills with what a step says of scored positions, and its translation."""

from __future__ import annotations

import numpy as np

from engine.native.library import Batch
from engine.ranking import NOTHING_SCORED, Ranking


class ScoreArrays:
    """Room for the scores of one step; lives until they have been read."""

    def __init__(self, batch: Batch, rows: int, top: int) -> None:
        """Lets `batch` point into it. top: so many likeliest tokens of each row."""
        self._logprobs = np.empty(rows, np.float32)
        self._ranks = np.empty(rows, np.int32)
        self._top_ids = np.empty((rows, top), np.int32)
        self._top_logprobs = np.empty((rows, top), np.float32)
        batch.top = top
        batch.logprobs, batch.ranks = self._logprobs.ctypes.data, self._ranks.ctypes.data
        batch.top_ids, batch.top_logprobs = self._top_ids.ctypes.data, self._top_logprobs.ctypes.data

    def read(self) -> Ranking:
        """What the library has put down."""
        if not len(self._ranks):
            return NOTHING_SCORED
        pairs = zip(self._top_ids.tolist(), self._top_logprobs.tolist(), strict=True)
        top = [list(zip(ids, values, strict=True)) for ids, values in pairs]
        return Ranking(self._logprobs.tolist(), self._ranks.tolist(), top)
