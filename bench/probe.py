"""What the machine gives at this moment, printed beside figures: those of two moments do not compare."""

from __future__ import annotations

import time

import torch


def bandwidth_gb_s(megabytes: int = 512) -> float:
    """Gigabytes a second that reading a large float32 tensor moves, best of three."""
    tensor = torch.ones(megabytes * (1 << 20) // 4)
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        tensor.sum()
        best = max(best, megabytes / 1024 * 1.073741824 / (time.perf_counter() - start))
    return best


def matmul_gflop_s(size: int = 1024) -> float:
    """Bfloat16 matrix-product rate, best of three."""
    left = torch.randn(size, size, dtype=torch.bfloat16)
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        left @ left
        best = max(best, 2 * size**3 / 1e9 / (time.perf_counter() - start))
    return best
