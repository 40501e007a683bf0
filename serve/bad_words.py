"""Words that an answer must not contain, as the token sequences that would spell them."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from engine.sampling import MAX_BAD_WORD_TOKENS
from serve.errors import InvalidField


class Encoder(Protocol):
    """What of a tokenizer is needed here."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


def token_sequences(encoder: Encoder, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Each word as it begins a text, and as it stands behind a space. Raises InvalidField."""
    found: dict[tuple[int, ...], None] = {}
    for place, word in enumerate(words):
        for form in _forms(word):
            ids = tuple(encoder.encode(form, add_special_tokens=False))
            if len(ids) > MAX_BAD_WORD_TOKENS:
                param = f"bad_words[{place}]"
                said = f"{param} has {len(ids)} tokens; at most {MAX_BAD_WORD_TOKENS} are allowed"
                raise InvalidField(said, param)
            if ids:
                found[ids] = None
    return tuple(found)


def _forms(word: str) -> Iterable[str]:
    bare = word.lstrip()
    return (bare, f" {bare}") if bare else (word,)
