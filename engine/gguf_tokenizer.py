"""Tokenizer and chat template of a GGUF file, written as the files transformers and our Tokenizer read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import UnsupportedModel
from engine.gguf_sentencepiece import sentencepiece
from engine.gguf_splits import BYTE_LEVEL, SPLITS, Split
from engine.gguf_vocabulary import CONTROL, UNUSED, USER_DEFINED, added_token

_MODELS = ("gpt2", "llama")
_PADDING = re.compile(r"\[PAD\d+\]\Z")
"""Names that fill a vocabulary up to the rows of the embedding."""

_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>")
"""Marks that end a turn in every chat format that has them, whatever the file names as its end."""


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
    if (model := meta.get("tokenizer.ggml.model")) not in _MODELS:
        raise UnsupportedModel(
            f"GGUF tokenizer {model} is not supported; supported: {', '.join(_MODELS)} (SentencePiece)"
        )
    split = _split(meta) if model == "gpt2" else None
    parts = sentencepiece(meta) if split is None else _byte_level(meta, split)
    marks_bos = meta.get("tokenizer.ggml.add_bos_token", split is None or split.bos)
    return GgufTokenizer(
        definition={
            "version": "1.0",
            "truncation": None,
            "padding": None,
            **parts,
            "post_processor": _post_processor(meta, marks_bos),
        },
        settings=_settings(meta),
        chat_template=meta.get("tokenizer.chat_template"),
        bos_id=meta.get("tokenizer.ggml.bos_token_id"),
        end_ids=_ends(meta),
    )


def _split(meta: Mapping[str, Any]) -> Split:
    """GPT-2's own files came before the key; nothing else can be told from its absence."""
    pre = meta.get("tokenizer.ggml.pre", "gpt-2" if meta["general.architecture"] == "gpt2" else "(none)")
    if pre not in SPLITS:
        raise UnsupportedModel(f"GGUF pre-tokenizer {pre} is not supported; supported: {', '.join(SPLITS)}")
    return SPLITS[pre]


def _byte_level(meta: Mapping[str, Any], split: Split) -> dict[str, Any]:
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    every = list(enumerate(zip(tokens, kinds, strict=True)))
    return {
        "added_tokens": [
            added_token(number, token, special=kind == CONTROL)
            for number, (token, kind) in every
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": split.normalizer,
        "pre_tokenizer": split.pre_tokenizer,
        "decoder": {**BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": split.ignore_merges,
            "vocab": {
                token: number
                for number, (token, kind) in every
                if not (kind == UNUSED and _PADDING.match(token))
            },
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def _post_processor(meta: Mapping[str, Any], marks_bos: bool) -> dict[str, Any] | None:
    """BOS in front of plain text and EOS behind it, where the file asks for them."""
    ids = {
        "bos": meta["tokenizer.ggml.bos_token_id"] if marks_bos else None,
        "eos": meta["tokenizer.ggml.eos_token_id"] if meta.get("tokenizer.ggml.add_eos_token") else None,
    }
    names = {end: meta["tokenizer.ggml.tokens"][number] for end, number in ids.items() if number is not None}
    if not names:
        return None

    def around(*texts: str) -> list[dict[str, Any]]:
        parts = [{"Sequence": {"id": text, "type_id": kind}} for kind, text in enumerate(texts)]
        first, last = (
            [{"SpecialToken": {"id": names[end], "type_id": 0}}] if end in names else []
            for end in ("bos", "eos")
        )
        return [*first, *parts, *last]

    special = {name: {"id": name, "ids": [ids[end]], "tokens": [name]} for end, name in names.items()}
    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": special,
    }


def _ends(meta: Mapping[str, Any]) -> tuple[int, ...]:
    named = [meta.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    kinds = meta["tokenizer.ggml.token_type"]
    marks = [
        number
        for number, token in enumerate(meta["tokenizer.ggml.tokens"])
        if token in _TURN_ENDS and kinds[number] in (CONTROL, USER_DEFINED)
    ]
    return tuple(end for end in dict.fromkeys((*named, *marks)) if end is not None)


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
