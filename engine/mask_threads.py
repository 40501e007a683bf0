"""Threads that make masks while the model's step runs. Knows no grammar and no model."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from engine.guide import Guide

MAX_THREADS = 4


class MaskThreads:
    """A few threads, which come with the first mask and end with this object.

    A mask that takes long keeps one thread busy; the others make the rest.
    """

    def __init__(self) -> None:
        self._count = max(2, min(MAX_THREADS, (os.cpu_count() or 1) // 2))
        self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="masks")

    def begin(self, guides: Iterable[Guide]) -> None:
        """Have the masks of those made whose mask is neither known nor on its way."""
        pile = deque(guide for guide in guides if guide.begin())
        for _ in range(min(self._count, len(pile))):
            self._pool.submit(_empty, pile)


def _empty(pile: deque[Guide]) -> None:
    while True:
        try:
            guide = pile.popleft()
        except IndexError:
            return
        guide.fill()
