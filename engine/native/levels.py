"""The instruction set that a model's kernels use: as asked for, as the processor has it and gets it right."""

from __future__ import annotations

import logging
from typing import Literal, Protocol

from engine.errors import NativeUnavailable

Level = Literal["best", "avx2", "avx512", "amx", "emulated-amx"]
LEVELS: dict[Level, int] = {"avx2": 1, "avx512": 2, "amx": 3, "emulated-amx": 4}
"""Instruction sets by name, numbered as in csrc/levels.h; "best" is the best that this processor has.

"emulated-amx" does what "amx" does in plain code on AVX-512: to test its products where there is no AMX.
"""

TOLERANCE = 1e-4
"""How far products of two levels may lie apart, beside their size: their sums differ in order only."""

logger = logging.getLogger(__name__)


class Library(Protocol):
    """What is asked of the compiled library."""

    def noria_level(self) -> int: ...

    def noria_disagreement(self, level: int, /) -> float: ...


def choose_level(library: Library, wanted: Level) -> int:
    """The number of the level to use. Raises NativeUnavailable for one that cannot run here, or runs wrong.

    "best" leaves AMX for AVX-512, and says so in the log, where the two disagree.
    """
    best = library.noria_level()
    level = best if wanted == "best" else LEVELS[wanted]
    if (LEVELS["avx512"] if wanted == "emulated-amx" else level) > best:
        raise NativeUnavailable(f"the processor cannot run the {wanted} kernels")
    if level != LEVELS["amx"]:
        return level
    distance = library.noria_disagreement(level)
    if distance <= TOLERANCE:
        return level
    fault = (
        f"products with AMX lie {distance:.2g} of their size from those with AVX-512, more than {TOLERANCE:g}"
    )
    if wanted == "amx":
        raise NativeUnavailable(fault)
    logger.warning("%s: this processor's steps run on AVX-512", fault)
    return LEVELS["avx512"]
