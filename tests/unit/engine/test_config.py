"""Settings are checked where they are built."""

from pathlib import Path
from typing import Any

import pytest

from engine.config import BLOCK_SIZE, EngineConfig, blocks_for
from engine.errors import InvalidConfig


@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (272, 17), (273, 18), (288, 18), (289, 19)],
)
def test_blocks_for(tokens: int, blocks: int) -> None:
    assert BLOCK_SIZE == 16
    assert blocks_for(tokens) == blocks


def test_defaults_are_valid() -> None:
    config = EngineConfig(model=Path("m"))
    assert config.max_batched_tokens >= config.max_num_seqs


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"kv_bytes": 0}, "kv_bytes is 0; at least 1"),
        ({"num_blocks": 0}, "num_blocks is 0; at least 1"),
        ({"max_model_len": 1}, "max_model_len is 1; at least 2"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0; at least 1"),
        ({"max_batched_tokens": 63}, r"max_batched_tokens is 63; at least max_num_seqs \(64\)"),
        ({"max_waiting": 0}, "max_waiting is 0; at least 1"),
        ({"adapter_slots": -1}, "adapter_slots is -1; at least 0"),
        ({"max_lora_rank": 0}, "max_lora_rank is 0; at least 1"),
        ({"threads": 0}, "threads is 0; at least 1"),
        ({"threads": 10_000}, "threads is 10000; at most 256"),
        ({"kv_bytes": "1GiB"}, "kv_bytes is '1GiB'; an integer from 1 on"),
        ({"memory_bytes": 1e9}, r"memory_bytes is 1000000000.0; an integer from 1 on"),
        ({"backend": "fast"}, "backend is 'fast'; allowed: 'auto', 'native', 'reference'"),
        ({"swap_bytes": -1}, "swap_bytes is -1; at least 0"),
        ({"policy": "hope"}, "policy is 'hope'; allowed: 'max_utilization', 'guaranteed_no_evict'"),
        ({"watermark": 1.0}, "watermark is 1.0; 0 to less than 1"),
        ({"watermark": -0.1}, "watermark is -0.1; 0 to less than 1"),
        ({"weights": "int4"}, "weights is 'int4'; allowed: 'model', 'int8'"),
        ({"kv_cache": "fp8"}, "kv_cache is 'fp8'; allowed: 'model', 'int8'"),
        ({"dtype": "int8"}, "dtype is 'int8'; allowed: 'float32', 'bfloat16'"),
    ],
)
def test_a_wrong_setting_is_refused_with_both_values(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        EngineConfig(model=Path("m"), **setting)
