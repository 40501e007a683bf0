"""How long a block's copy takes here, found by copying some. Knows no schedule."""

from __future__ import annotations

import time
from typing import Protocol

from engine.records import BlockCopy

PROBE_BYTES = 16 << 20


class CopiesBlocks(Protocol):
    """What of a model is needed here."""

    def copy_blocks(self, copies: list[BlockCopy]) -> None: ...


def seconds_per_block(model: CopiesBlocks, num_blocks: int, num_host_blocks: int, block_bytes: int) -> float:
    """Seconds of one block's copy from the pool to host memory, whose content is lost; 0 without any."""
    if num_host_blocks == 0:
        return 0.0
    count = max(1, PROBE_BYTES // block_bytes)
    copies = [BlockCopy(i % num_blocks, num_blocks + i % num_host_blocks) for i in range(count)]
    model.copy_blocks(copies)  # memory that was never touched comes page by page
    start = time.perf_counter()
    model.copy_blocks(copies)
    return (time.perf_counter() - start) / count
