"""Which tokens would end a bad word, against a naive search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.bad_words import BadWords

TOKENS = st.integers(0, 3)


@given(
    words=st.lists(st.lists(TOKENS, min_size=1, max_size=4).map(tuple), max_size=6),
    outputs=st.lists(TOKENS, max_size=8),
)
def test_what_ends_a_word_is_found(words: list[tuple[int, ...]], outputs: list[int]) -> None:
    want = {token for token in range(4) for word in words if tuple([*outputs, token][-len(word) :]) == word}
    assert set(BadWords(words).ended_by(outputs)) == want


def test_a_word_longer_than_what_was_generated_ends_nowhere() -> None:
    assert BadWords([(1, 2, 3)]).ended_by([2]) == []
    assert BadWords([(1, 2, 3)]).ended_by([1, 2]) == [3]
    assert BadWords([(5,)]).ended_by([]) == [5]
