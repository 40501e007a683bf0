"""Tokenizer and chat template of a GGUF file, written as the files transformers and our Tokenizer read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UnsupportedModel

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS: Mapping[str, Mapping[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
}
"""`tokenizer.ggml.pre` -> how text is cut before the merges."""

_CONTROL, _USER_DEFINED = 3, 4
"""`tokenizer.ggml.token_type`: tokens that are matched whole, with and without a special meaning."""


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """What the importer writes; `end_ids` end a completion, the turn's end among them."""

    definition: Mapping[str, Any]
    settings: Mapping[str, Any]
    chat_template: str | None
    bos_id: int | None
    end_ids: tuple[int, ...]

    def write(self, folder: Path) -> None:
        """tokenizer.json, tokenizer_config.json and, where there is one, chat_template.jinja."""
        definition = json.dumps(self.definition, ensure_ascii=False)
        (folder / "tokenizer.json").write_text(definition, encoding="utf-8")
        settings = json.dumps(self.settings, ensure_ascii=False, indent=2)
        (folder / "tokenizer_config.json").write_text(settings + "\n", encoding="utf-8")
        if self.chat_template is not None:
            (folder / "chat_template.jinja").write_text(self.chat_template, encoding="utf-8")


def read_tokenizer(meta: Mapping[str, Any]) -> GgufTokenizer:
    """From the `tokenizer.*` keys of a file. Raises UnsupportedModel for a kind that has no row here."""
    if (model := meta.get("tokenizer.ggml.model")) != "gpt2":
        raise UnsupportedModel(f"GGUF tokenizer {model} is not supported; supported: gpt2")
    pre = meta.get("tokenizer.ggml.pre", "gpt-2")
    if pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise UnsupportedModel(f"GGUF pre-tokenizer {pre} is not supported; supported: {known}")
    bos, eos = meta.get("tokenizer.ggml.bos_token_id"), meta.get("tokenizer.ggml.eos_token_id")
    ends = dict.fromkeys((eos, meta.get("tokenizer.ggml.eot_token_id")))
    return GgufTokenizer(
        definition=_definition(meta, pre),
        settings=_settings(meta),
        chat_template=meta.get("tokenizer.chat_template"),
        bos_id=bos,
        end_ids=tuple(end for end in ends if end is not None),
    )


def _definition(meta: Mapping[str, Any], pre: str) -> dict[str, Any]:
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokens, meta["tokenizer.ggml.token_type"]),
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": _post_processor(meta),
        "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def _added(tokens: list[str], kinds: list[int]) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": token, **flags, "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _post_processor(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """BOS in front of plain text, where the file asks for it."""
    if not meta.get("tokenizer.ggml.add_bos_token", False):
        return None
    bos = meta["tokenizer.ggml.bos_token_id"]
    token = meta["tokenizer.ggml.tokens"][bos]
    mark = {"SpecialToken": {"id": token, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": kind}} for name, kind in (("A", 0), ("B", 1)))
    return {
        "type": "TemplateProcessing",
        "single": [mark, first],
        "pair": [mark, first, second],
        "special_tokens": {token: {"id": token, "ids": [bos], "tokens": [token]}},
    }


def _settings(meta: Mapping[str, Any]) -> dict[str, Any]:
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: meta.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        # The class that takes tokenizer.json as it is; others rebuild their own pre-tokenizer.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(meta[f"{meta['general.architecture']}.context_length"]),
        **{name: tokens[number] for name, number in ids.items() if number is not None},
    }
