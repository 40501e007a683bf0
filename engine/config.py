"""Settings of one engine: sizes and limits. Knows neither files' contents nor devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from engine.errors import InvalidConfig

BLOCK_SIZE = 16
"""Tokens whose keys and values one KV block holds."""

MAX_THREADS = 256
"""Beyond it a step would spend its time on waking them."""

Dtype = Literal["float32", "bfloat16"]
Backend = Literal["auto", "native", "reference"]
Form = Literal["model", "int8"]
Policy = Literal["max_utilization", "guaranteed_no_evict"]


def blocks_for(num_tokens: int) -> int:
    """Blocks that hold the keys and values of `num_tokens` tokens: 273 tokens need 18."""
    return -(-num_tokens // BLOCK_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What an engine is built from; raises InvalidConfig where values contradict each other.

    model: folder in Hugging Face layout.
    memory_bytes: of the whole process; the KV pool gets what its other parts leave, see engine.memory.
    kv_bytes: of the KV pool alone, where no budget for all is given; None for both means 1 GiB of KV.
        `num_blocks` wins over both.
    max_model_len: tokens of prompt and completion together; None means the model's own limit,
        or what the pool holds where that is less.
    max_num_seqs: sequences that run at once. max_batched_tokens: tokens computed in one step; those
        of a prompt behind a long context count for more, as they take longer, see engine.budget.
    max_waiting: requests that may wait. adapter_slots: adapters one step may have (slot 0, no adapter,
        is not counted). adapter_bytes: of all adapters kept in memory, more than have a slot or fewer; None
        for what adapter_slots of them take at max_lora_rank on all modules, see engine.memory.
    threads: CPU threads of the runner; None leaves the library's choice.
    backend: "native" computes steps in C++, "reference" in torch; "auto" takes the native one where it
        can be built and run, and says so where not.
    weights: "model" multiplies with the model's weights in `dtype`; "int8" with weights and rows rounded to
        eight bits, near twice as fast, in half the memory and not quite the model: native backend only.
    kv_cache: "model" keeps keys and values in `dtype`; "int8" in eight bits with a scale for each token and
        head, about twice as many tokens in the same bytes: native backend only.
    policy: what admission promises, see engine.policies. watermark: share of the KV blocks that admission
        leaves free while others run, so that they can grow.
    swap_bytes: host memory for the blocks of preempted sequences, 0 for none. They are copied there where
        that takes less time than to compute them again, as measured.
    check_integrity: verify every invariant after every step (for tests).
    """

    model: Path
    dtype: Dtype = "bfloat16"
    memory_bytes: int | None = None
    kv_bytes: int | None = None
    num_blocks: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_batched_tokens: int = 512
    max_waiting: int = 1024
    adapter_slots: int = 8
    adapter_bytes: int | None = None
    max_lora_rank: int = 64
    prefix_cache: bool = True
    threads: int | None = None
    backend: Backend = "auto"
    weights: Form = "model"
    kv_cache: Form = "model"
    policy: Policy = "max_utilization"
    watermark: float = 0.01
    swap_bytes: int = 0
    check_integrity: bool = False

    def __post_init__(self) -> None:
        lowest = {
            "memory_bytes": 1,
            "kv_bytes": 1,
            "num_blocks": 1,
            "max_model_len": 2,
            "max_num_seqs": 1,
            "max_batched_tokens": 1,
            "max_waiting": 1,
            "swap_bytes": 0,
            "adapter_slots": 0,
            "adapter_bytes": 0,
            "max_lora_rank": 1,
            "threads": 1,
        }
        for name, low in lowest.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidConfig(f"{name} is {value!r}; an integer from {low} on is allowed")
            if value is not None and value < low:
                raise InvalidConfig(f"{name} is {value}; at least {low} is allowed")
        if self.threads is not None and self.threads > MAX_THREADS:
            raise InvalidConfig(f"threads is {self.threads}; at most {MAX_THREADS} is allowed")
        forms = (("weights", Form), ("kv_cache", Form))
        for name, kind in (("dtype", Dtype), ("backend", Backend), ("policy", Policy), *forms):
            value, allowed = getattr(self, name), get_args(kind)
            if value not in allowed:
                raise InvalidConfig(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")
        if self.memory_bytes is not None and self.kv_bytes is not None:
            raise InvalidConfig(
                f"memory_bytes is {self.memory_bytes} and kv_bytes {self.kv_bytes}; one of the two is allowed"
            )
        if not 0 <= self.watermark < 1:
            raise InvalidConfig(f"watermark is {self.watermark}; 0 to less than 1 is allowed")
        if self.max_batched_tokens < self.max_num_seqs:
            # Every running sequence must be able to advance by one token in every step.
            raise InvalidConfig(
                f"max_batched_tokens is {self.max_batched_tokens}; "
                f"at least max_num_seqs ({self.max_num_seqs}) is allowed"
            )

    @property
    def kv_dtype(self) -> Dtype | Literal["int8"]:
        """What keys and values are kept in."""
        return self.dtype if self.kv_cache == "model" else "int8"
