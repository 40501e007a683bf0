"""Text to token ids and back, and chat messages to a prompt, from a model folder. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import tokenizers

from engine.chat_template import ChatTemplate
from engine.confined_template import ConfinedTemplate, TemplateProcesses
from engine.errors import InvalidParameter, NoChatTemplate, UnsupportedModel
from engine.modelspec import is_encoder, read_spec
from engine.open_message import cut_open, open_last
from engine.token_text import TextStream, TokenText

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """The tokenizer of one model folder (tokenizer.json, tokenizer_config.json, chat template).

    Threads may share it. Raises UnsupportedModel for files that are missing or of an unknown kind.
    """

    def __init__(self, folder: Path) -> None:
        raw = _read(folder / "tokenizer.json")
        config = json.loads(_read(folder / "tokenizer_config.json", default="{}"))
        self._folder = folder
        self._encoder = tokenizers.Tokenizer.from_str(raw)
        self._encoder.no_truncation()
        self._encoder.no_padding()
        self._text = TokenText(json.loads(raw).get("decoder"), self._encoder.id_to_token)
        added = self._encoder.get_added_tokens_decoder()
        self._special_ids = frozenset(id_ for id_, token in added.items() if token.special)
        self._special = {name: _content(config[name]) for name in _SPECIAL if config.get(name) is not None}
        self._templates = {
            name: ChatTemplate(source, self._special) for name, source in _sources(folder, config).items()
        }
        spec = None if is_encoder(folder) else read_spec(folder, headless=True)
        self.eos_ids = frozenset(spec.eos_token_ids if spec else ())

    @property
    def vocab_size(self) -> int:
        """Ids of this vocabulary are 0 .. vocab_size - 1; the model may have more, which mean nothing."""
        return int(self._encoder.get_vocab_size(with_added_tokens=True))

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The folder's own template of a chat without tools."""
        return self._templates.get("default")

    def template_for(self, tools: bool) -> ChatTemplate | None:
        """The folder's own template of a chat, with tools or without."""
        return (self._templates.get("tool_use") if tools else None) or self.chat_template

    def confined_template(self, source: str, processes: TemplateProcesses) -> ConfinedTemplate:
        """Another template, such as an adapter's, with this tokenizer's special tokens. Not yet compiled."""
        return ConfinedTemplate(source, self._special, processes)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a plain text, with the marks (such as BOS) that the tokenizer puts around it, or without."""
        return self._ids(text, add_special_tokens)

    def encode_cut(
        self, text: str, limit: int, side: Literal["left", "right"], *, add_special_tokens: bool = True
    ) -> list[int]:
        """As encode(), in at most `limit` tokens: cut away at `side`, the marks kept around what is left."""
        made = self._encoder.encode(_proper(text), add_special_tokens=False)
        made.truncate(limit - (self.marks if add_special_tokens else 0), direction=side)
        return list(self._encoder.post_process(made, add_special_tokens=add_special_tokens).ids)

    @property
    def marks(self) -> int:
        """How many tokens encode() puts around a text."""
        return int(self._encoder.num_special_tokens_to_add(is_pair=False))

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        *,
        continue_final_message: bool = False,
        chat_template: ConfinedTemplate | None = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Prompt text of the messages, to be encoded without further marks: the template sets its BOS itself.

        `variables` reach the template by name. `chat_template` stands in for the folder's own.
        continue_final_message: the text ends within the last message, as transformers' does. Raises
        NoChatTemplate where there is none, BadTemplateInput where it refuses the messages.
        """
        template = chat_template or self.template_for(bool(tools))
        if template is None:
            raise NoChatTemplate(f"{self._folder} carries no chat template; send a plain prompt instead")
        shown = open_last(messages) if continue_final_message else messages
        text = template.render(
            shown, tools=tools, add_generation_prompt=add_generation_prompt, variables=variables
        )
        return cut_open(text) if continue_final_message else text

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text of `token_ids`, special tokens left out."""
        stream = self.stream()
        return stream.push(b"".join(map(self.text_bytes, token_ids))) + stream.finish()

    def stream(self, *, continues: bool = False) -> TextStream:
        """A reader that turns text_bytes of one token after another into text.

        continues: other text goes before it, so a space at its beginning is one.
        """
        return self._text.stream(continues)

    def text_bytes(self, token_id: int) -> bytes:
        """What the token adds to the text: nothing for a special one."""
        return b"" if token_id in self._special_ids else self._text.bytes_of(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of the token itself, special ones included; empty for an id outside the vocabulary."""
        return self._text.bytes_of(token_id)

    @property
    def drops_first_space(self) -> bool:
        """Whether a space that a completion begins with is left out of its text."""
        return self._text.drops_first_space

    def serialized(self) -> str:
        """The tokenizer as one JSON text, in the form of tokenizer.json."""
        return self._encoder.to_str()

    def special_id(self, token: str) -> int | None:
        """Id of a special token by its spelling; None where it is none."""
        id_ = self._encoder.token_to_id(token)
        return id_ if id_ in self._special_ids else None

    def spelling(self, token_id: int) -> str:
        """The token as the vocabulary writes it; empty for an id outside the vocabulary."""
        return self._encoder.id_to_token(token_id) or ""

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(self._encoder.encode(_proper(text), add_special_tokens=add_special_tokens).ids)


def _proper(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        met = text[error.start : error.end]
        raise InvalidParameter("text", met, "Unicode without lone surrogates") from error
    return text


def _read(path: Path, default: str | None = None) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if default is None:
            raise UnsupportedModel(f"{path} is missing; a fast tokenizer's file is needed") from None
        return default


def _sources(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the templates by name. A chat_template.jinja beside the config wins over its own default."""
    declared = config.get("chat_template") or {}
    if isinstance(declared, str):
        declared = {"default": declared}
    elif isinstance(declared, list):
        declared = {entry["name"]: entry["template"] for entry in declared}
    if beside := _read(folder / "chat_template.jinja", default=""):
        declared = {**declared, "default": beside}
    return declared


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
