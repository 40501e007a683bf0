"""How the BPE tokenizers of GGUF files cut text before the merges, by `tokenizer.ggml.pre`.

The patterns are those of the models' own tokenizer.json files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PLAIN_BYTES = {**BYTE_LEVEL, "use_regex": False}
_NFC = {"type": "NFC"}

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_QWEN2 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD, _SIGNS = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_SIGNS}|{_BLANKS}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_LEAD}{_UPPER}+{_LOWER}*{_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}|{_SIGNS}|{_BLANKS}"
)


@dataclass(frozen=True, slots=True)
class Split:
    """pre_tokenizer, normalizer: parts of tokenizer.json. ignore_merges: a piece that is a token is taken
    whole. bos: BOS goes in front where the file does not say."""

    pre_tokenizer: Mapping[str, Any]
    normalizer: Mapping[str, Any] | None = None
    ignore_merges: bool = False
    bos: bool = False


def _by(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _PLAIN_BYTES]}


_LLAMA3_SPLIT = Split(_by(_LLAMA3), ignore_merges=True, bos=True)

SPLITS: Mapping[str, Split] = {
    "gpt-2": Split(BYTE_LEVEL),
    "smollm": Split(
        {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}
    ),
    "llama-bpe": _LLAMA3_SPLIT,
    "llama3": _LLAMA3_SPLIT,
    "llama-v3": _LLAMA3_SPLIT,
    "qwen2": Split(_by(_QWEN2), _NFC),
    "deepseek-r1-qwen": Split(_by(_QWEN2)),
    "tekken": Split(_by(_TEKKEN), ignore_merges=True, bos=True),
    "dbrx": Split(_by(_LLAMA3)),
    "gpt-4o": Split(_by(_GPT4O)),
}
