"""Bits over a vocabulary and back."""

from __future__ import annotations

import pytest

from engine.token_mask import holds, mask_of, tokens_of


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 50])
def test_a_set_comes_back(vocab_size: int) -> None:
    wanted = [token for token in (0, 7, 8, 30, 31, 32, 49) if token < vocab_size]
    mask = mask_of(wanted, vocab_size)
    assert len(mask) % 4 == 0
    assert tokens_of(mask, vocab_size).nonzero()[0].tolist() == wanted
    assert len(tokens_of(mask, vocab_size)) == vocab_size
    assert [token for token in range(vocab_size) if holds(mask, token)] == wanted
