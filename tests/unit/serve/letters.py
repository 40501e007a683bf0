"""A tokenizer whose tokens are bytes: 0 ends a text and shows nothing, 300 is a special token, <s>."""

from collections.abc import Iterable

from engine.token_text import TextStream

SPECIAL = 300


class Letters:
    eos_ids = frozenset({0})
    vocab_size = 301

    def token_bytes(self, token_id: int) -> bytes:
        return {0: b"<end>", SPECIAL: b"<s>"}.get(token_id) or bytes([token_id])

    def text_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in (0, SPECIAL) else bytes([token_id])

    def stream(self, *, continues: bool = False) -> TextStream:
        return TextStream(strip_first_space=False)

    def prompt_stream(self) -> TextStream:
        return self.stream()

    def prompt_text(self, token_ids: Iterable[int]) -> str:
        return b"".join(map(self.text_bytes, token_ids)).decode("utf-8", "replace")
