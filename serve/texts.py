"""Texts to be made vectors, as token ids: read, cut where that was asked for, refused where too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.tokenizer import Tokenizer
from serve.errors import InputTooLong, InvalidField
from serve.prompts import refuse_unknown
from serve.protocol.embeddings import Text, VectorBody


@dataclass(frozen=True, slots=True)
class TextReader:
    """For one request. vocabulary: ids are below it. longest: tokens that the model takes of one text."""

    tokenizer: Tokenizer
    body: VectorBody
    vocabulary: int
    longest: int

    def read(self, texts: Sequence[Text], param: str) -> list[list[int]]:
        """Ids of each, as the model reads them; it takes as long as the texts are long.

        Raises InvalidField, InputTooLong, and InvalidParameter for text that is no Unicode.
        """
        return [self._read(text, f"{param}[{place}]" if place else param) for place, text in enumerate(texts)]

    def shown(self, texts: Sequence[Text]) -> list[dict[str, Any]]:
        """As the record keeps them."""
        return [
            {"role": "input", "content": text if isinstance(text, str) else self.tokenizer.decode(text)}
            for text in texts
        ]

    def _read(self, text: Text, param: str) -> list[int]:
        if isinstance(text, str):
            ids = self.tokenizer.encode(text, add_special_tokens=self.body.add_special_tokens)
        else:
            refuse_unknown(text, self.vocabulary, param)
            ids = text
        asked = self.body.truncate_prompt_tokens
        if asked is None and len(ids) > self.longest:
            raise InputTooLong(len(ids), self.longest, param)
        if asked is not None and len(ids) > (room := self.longest if asked < 0 else min(asked, self.longest)):
            ids = self._cut(text, room)
        if not ids:
            raise InvalidField(f"{param} has no tokens; at least one is needed", param)
        return ids

    def _cut(self, text: Text, room: int) -> list[int]:
        """Marks around a text stay; those that a client put among its own ids are not known."""
        side, marks = self.body.truncation_side, self.body.add_special_tokens
        least = 1
        if isinstance(text, str):
            least += self.tokenizer.marks if marks else 0
        if room < least:
            name = "truncate_prompt_tokens"
            raise InvalidField(f"{name} is {room}; at least {least} leave a token of the text", name)
        if isinstance(text, str):
            return self.tokenizer.encode_cut(text, room, side, add_special_tokens=marks)
        return text[:room] if side == "right" else text[-room:]
