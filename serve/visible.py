"""What of a sequence of tokens is text: some special tokens may show, and text may go on from other text."""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from engine.token_text import TextStream
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class VisibleText:
    """A tokenizer's reading of an answer's tokens; a TextSource for a Detokenizer.

    special: ids of the special tokens that show. continues: the answer goes on from the text of its prompt.
    """

    tokenizer: Tokenizer
    special: Container[int] = ()
    continues: bool = False

    def stream(self) -> TextStream:
        """A fresh reader of text_bytes."""
        return self.tokenizer.stream(continues=self.continues)

    def text_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text."""
        tokenizer = self.tokenizer
        return tokenizer.token_bytes(token_id) if token_id in self.special else tokenizer.text_bytes(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of the token itself, whether it shows or not."""
        return self.tokenizer.token_bytes(token_id)

    def prompt_stream(self) -> TextStream:
        """A fresh reader for a text that goes on from nothing."""
        return self.tokenizer.stream()

    def prompt_text(self, token_ids: Iterable[int]) -> str:
        """The text of a prompt."""
        stream = self.prompt_stream()
        return stream.push(b"".join(map(self.text_bytes, token_ids))) + stream.finish()


def all_special(tokenizer: Tokenizer) -> Container[int]:
    """Ids among which are those of all special tokens."""
    return range(tokenizer.vocab_size)
