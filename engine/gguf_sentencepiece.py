"""The SentencePiece vocabulary of a GGUF file as the BPE part of a tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.tokenization_utils_base import generate_merges

from engine.errors import UnsupportedModel
from engine.gguf_vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED, added_token

_SPACE = "▁"
_GEMMA = ("gemma2", "gemma3")
_KEEPS_SPACE_BEHIND = ("<unk>", "<s>", "<|endoftext|>")
"""Marks of Phi-3 behind which white space is text; behind its others it is dropped."""


def sentencepiece(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of tokenizer.json. Raises UnsupportedModel for a vocabulary that cannot spell every byte."""
    kinds, gemma = meta["tokenizer.ggml.token_type"], meta["general.architecture"] in _GEMMA
    if kinds.count(BYTE) != 256:
        raise UnsupportedModel(
            f"the SentencePiece vocabulary has {kinds.count(BYTE)} byte tokens; 256 needed"
        )
    tokens = [_respelt(token) for token in meta["tokenizer.ggml.tokens"]]
    vocab = {token: number for number, token in enumerate(tokens)}
    # A Gemma's scores are not the order of its merges; that of its tokens is.
    scores = None if gemma else dict(zip(tokens, meta["tokenizer.ggml.scores"], strict=True))
    whole = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (UNKNOWN, CONTROL, BYTE)]
    return {
        "added_tokens": _added(meta, tokens, kinds),
        **_spaces(meta.get("tokenizer.ggml.add_space_prefix", not gemma)),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": next((t for t, kind in zip(tokens, kinds, strict=True) if kind == UNKNOWN), None),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in generate_merges(vocab, scores, skip_tokens=whole)],
        },
    }


def _respelt(token: str) -> str:
    """A run of spaces as text holds it behind the normalizer; GGUF keeps those of Gemma as plain spaces."""
    return _SPACE * len(token) if token and not token.strip(" ") else token


def _added(meta: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> list[dict[str, Any]]:
    phi3 = meta["general.architecture"] == "phi3"
    return [
        added_token(
            number,
            token,
            special=kind != USER_DEFINED,
            normalized=token.startswith(_SPACE),
            rstrip=phi3 and token not in _KEEPS_SPACE_BEHIND,
        )
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def _spaces(prefix: bool) -> dict[str, Any]:
    """prefix: a space goes in front of the text and of what follows a mark, and is taken off when decoded."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if not prefix:
        return {
            "normalizer": replace,
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": steps},
        }
    steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, replace]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
    }
