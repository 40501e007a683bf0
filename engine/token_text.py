"""Bytes behind each token id, and text made from them piece by piece. Knows nothing of stop strings.

Three kinds of vocabulary: byte-level BPE (GPT-2's printable stand-ins for bytes), SentencePiece with
byte fallback ("▁" for a space, "<0x0A>" for a byte), and an encoder's WordPiece ("##" for what goes on a
word; case and spaces of the text are lost). In all, text is the UTF-8 reading of the tokens' bytes one after
another, with U+FFFD for what is no UTF-8.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import UnsupportedModel

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class TextStream:
    """Text of a growing token sequence: a character is given out once its last byte is in."""

    def __init__(self, strip_first_space: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = strip_first_space

    def push(self, data: bytes) -> str:
        """The characters that `data` completes."""
        return self._stripped(self._decoder.decode(data))

    def finish(self) -> str:
        """U+FFFD for a character left incomplete."""
        return self._stripped(self._decoder.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        if not (self._strip and text):
            return text
        self._strip = False
        return text.removeprefix(" ")


class TokenText:
    """Token strings of one vocabulary, turned into bytes."""

    def __init__(self, decoder: Mapping[str, Any] | None, token_of: Callable[[int], str | None]) -> None:
        """decoder: that part of tokenizer.json. Raises UnsupportedModel for one that is no such kind."""
        self._token_of = token_of
        self._known: dict[int, bytes] = {}
        steps = _steps(decoder)
        if steps == ["ByteLevel"]:
            self._encode, self._strip = _byte_level, False
        elif "ByteFallback" in steps and set(steps) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
            self._encode, self._strip = _byte_fallback, "Strip" in steps
        elif steps == ["WordPiece"]:
            self._encode, self._strip = _word_piece, True
        else:
            raise UnsupportedModel(
                f"tokenizer decoder {'+'.join(steps)} is not supported; "
                "supported: ByteLevel, Replace+ByteFallback+Fuse with Strip or without, WordPiece"
            )

    def bytes_of(self, token_id: int) -> bytes:
        """Bytes of one token; empty for an id that the vocabulary does not have."""
        found = self._known.get(token_id)
        if found is None:
            token = self._token_of(token_id)
            found = self._known[token_id] = b"" if token is None else self._encode(token)
        return found

    @property
    def drops_first_space(self) -> bool:
        """Whether a space that a text begins with is left out of it."""
        return self._strip

    def stream(self, continues: bool = False) -> TextStream:
        """A fresh reader of this vocabulary's bytes; continues: they go on from others."""
        return TextStream(self._strip and not continues)


def _steps(decoder: Mapping[str, Any] | None) -> list[str]:
    if decoder is None:
        return ["(none)"]
    return [str(step["type"]) for step in decoder.get("decoders", [decoder])]


def _byte_level(token: str) -> bytes:
    """A token with any character that stands for no byte (an added one) is its own UTF-8."""
    try:
        return bytes(_BYTES[char] for char in token)
    except KeyError:
        return token.encode()


def _byte_fallback(token: str) -> bytes:
    if match := _BYTE_TOKEN.match(token):
        return bytes([int(match[1], 16)])
    return token.replace("▁", " ").encode()


def _word_piece(token: str) -> bytes:
    return token.removeprefix("##").encode() if token.startswith("##") else f" {token}".encode()


def _byte_stand_ins() -> dict[str, int]:
    """GPT-2's table: printable bytes stand for themselves, the others for 256 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_stand_ins()
