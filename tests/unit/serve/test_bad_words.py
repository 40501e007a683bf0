import pytest

from serve.bad_words import token_sequences
from serve.errors import InvalidField


class Bytes:
    """A token a byte."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())


@pytest.mark.parametrize(
    ("words", "sequences"),
    [
        (["ab"], [b"ab", b" ab"]),
        (["  ab"], [b"ab", b" ab"]),
        (["ab", "ab", "c"], [b"ab", b" ab", b"c", b" c"]),
        ([" "], [b" "]),
        ([], []),
    ],
)
def test_a_word_is_spelt_at_the_beginning_and_behind_a_space(
    words: list[str], sequences: list[bytes]
) -> None:
    assert token_sequences(Bytes(), words) == tuple(map(tuple, sequences))


def test_a_word_of_too_many_tokens_is_refused_by_its_place() -> None:
    with pytest.raises(InvalidField) as caught:
        token_sequences(Bytes(), ["a", "x" * 64])
    assert caught.value.param == "bad_words[1]"
    assert "65 tokens; at most 64" in str(caught.value)
