"""Token sequences that a completion must not contain: which tokens would end one now. Knows no logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class BadWords:
    """Looked up by the token before a word's last, so that a step costs the same however many there are."""

    def __init__(self, words: Iterable[tuple[int, ...]]) -> None:
        """words: of one token or more each."""
        self._always: list[int] = []
        self._after: dict[int, list[tuple[int, ...]]] = {}
        for word in words:
            if len(word) == 1:
                self._always.append(word[0])
            else:
                self._after.setdefault(word[-2], []).append(word)

    def ended_by(self, outputs: Sequence[int]) -> list[int]:
        """Tokens that would complete a word of which `outputs` end with all others."""
        words = self._after.get(outputs[-1], ()) if outputs else ()
        return [*self._always, *(word[-1] for word in words if tuple(outputs[1 - len(word) :]) == word[:-1])]
