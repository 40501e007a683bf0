"""How big the demonstration is: chosen so that two cores turn the loop in about ten minutes."""

from __future__ import annotations

from typing import Final

ENDPOINT: Final = "assistant"
TENANT: Final = "default"
SEED: Final = 20

MAX_TOKENS: Final = 96
"""Of one answer, in the traffic as in the evaluation."""

CONCURRENCY: Final = 16
"""Answers that stream at the same time."""

HELD_OUT: Final = 60
"""Prompts kept apart for the evaluation."""

REPLAY_PROMPTS: Final = 320
REPLAY_READERS: Final = 24

CANARY_PERCENT: Final = 20.0
CANARY_READERS: Final = 120
CANARY_RETURNING: Final = 40
"""Readers of the canary stage who come back with a second prompt, to show that they keep their version."""

LONG_STREAMS: Final = 6
"""Streams kept open across the promotion."""

LONG_TOKENS: Final = 320
