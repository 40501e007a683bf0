"""A model's vocabulary as the grammar compiler has it: the bytes of each token, and how bytes are cut.

Where only one continuation is left, the compiler wants it cut as the tokenizer itself would, which is what
the model has learned. Special tokens have no bytes: no text makes one.
"""

from __future__ import annotations

from itertools import count

import tokenizers
from llguidance import LLTokenizer, TokenizerWrapper

from engine.tokenizer import Tokenizer

_MARK = "\x02"


class _Cutter:
    """What LLTokenizer asks for, by the names it asks by."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: frozenset[int]) -> None:
        own = range(tokenizer.vocab_size)
        self.eos_token_id = min(end_ids)
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in own] + [b""] * (vocab_size - len(own))
        special = {token_id for token_id in own if not tokenizer.text_bytes(token_id)} | end_ids
        self.special_token_ids = sorted(special)
        self._encoder = tokenizers.Tokenizer.from_str(tokenizer.serialized())
        self._encoder.encode_special_tokens = True
        said = ((self.tokens[token_id], token_id) for token_id in own if token_id not in special)
        self._ids = {data: token_id for data, token_id in said if data}
        self._longest = max(map(len, self._ids))

    def __call__(self, data: bytes) -> list[int]:
        """Ids of bytes in the middle of a text, none of them special."""
        text = data.decode("utf-8", "replace")
        ids = self._encode(text)
        if self._bytes(ids) == data:
            return ids
        # A tokenizer that puts a space before a text does so before the mark.
        ids = self._encode(_MARK + text)
        marked = next((n for n in count(1) if n > len(ids) or self._bytes(ids[:n]).endswith(b"\x02")), 0)
        if self._bytes(ids[marked:]) == data:
            return ids[marked:]
        return self._longest_first(data)

    def _encode(self, text: str) -> list[int]:
        return list(self._encoder.encode(text, add_special_tokens=False).ids)

    def _bytes(self, ids: list[int]) -> bytes:
        return b"".join(self.tokens[token_id] for token_id in ids)

    def _longest_first(self, data: bytes) -> list[int]:
        """As far as there are tokens for it."""
        ids: list[int] = []
        at = 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            end = next((end for end in ends if data[at:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[data[at:end]])
            at = end
        return ids


def compiler_tokens(tokenizer: Tokenizer, vocab_size: int, end_ids: frozenset[int]) -> LLTokenizer:
    """The tokenizer's vocabulary, filled up to vocab_size with tokens that nothing allows.

    end_ids: at least one; allowed where a sentence may end.
    """
    cutter = _Cutter(tokenizer, vocab_size, end_ids)
    return LLTokenizer(TokenizerWrapper(cutter), eos_token=sorted(end_ids))
