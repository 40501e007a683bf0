"""Kinds of tokens in a GGUF file (`tokenizer.ggml.token_type`), and tokens that are matched whole."""

from __future__ import annotations

from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def added_token(
    number: int, token: str, *, special: bool, normalized: bool = False, rstrip: bool = False
) -> dict[str, Any]:
    """An entry of tokenizer.json's `added_tokens`."""
    return {
        "id": number,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": rstrip,
        "normalized": normalized,
        "special": special,
    }
