"""How long to wait before each further try of what was refused for the moment."""

import random
from collections.abc import Iterator

FIRST_S = 0.25


def growing_pauses(longest_s: float) -> Iterator[float]:
    """Seconds, twice as many each time up to `longest_s`, and less by chance: not all come again at once."""
    pause = FIRST_S
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, longest_s)
