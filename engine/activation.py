"""Where in a prompt an adapter begins to hold: at its first token, or where activated LoRA is switched on.

The rule of PEFT's calculate_alora_offsets (arXiv 2504.12397): at the first token of the last occurrence of
the invocation tokens. Knows no weights.
"""

from __future__ import annotations

from collections.abc import Sequence

NEVER = 1 << 62
"""Position from which an adapter holds that holds for no token."""


def activation(prompt: Sequence[int], invocation: Sequence[int]) -> int:
    """The position from which the adapter holds.

    0 for an adapter without invocation tokens. NEVER for a prompt that does not contain them: the base model
    answers it, also where they come up in the completion.
    """
    if not invocation:
        return 0
    first, length, tokens = invocation[0], len(invocation), tuple(invocation)
    for start in range(len(prompt) - length, -1, -1):
        if prompt[start] == first and tuple(prompt[start : start + length]) == tokens:
            return start
    return NEVER
