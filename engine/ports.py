"""The seam between deciding and computing: what the engine asks of a model runner.

`engine.runner.build_runner(config)` makes the real one; tests have a small fake.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from engine.kv_groups import Window
from engine.records import MemorySplit, SampledTokens, SlotChange, StepPlan

if TYPE_CHECKING:
    from engine.adapter_weights import AdapterWeights


class PreparedAdapter(Protocol):
    """An adapter in a backend's own form, in memory: steps and slots share it, nothing changes it.

    Owns its memory, which is freed with the last reference; a slot that it is bound to holds one.
    """

    @property
    def digest(self) -> str:
        """That of the weights it was made of."""

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""

    @property
    def invocation(self) -> tuple[int, ...]:
        """Tokens that switch it on, see engine.activation; empty where it holds for every token."""


class ModelRunner(Protocol):
    """Owns every tensor: weights, KV pool, adapter slots.

    Called from one thread at a time, but for prepare_adapter, which any thread may call at any time.
    """

    @property
    def num_blocks(self) -> int:
        """KV blocks it has, ids 0 .. num_blocks - 1 (config.num_blocks, or what memory holds)."""

    @property
    def memory(self) -> MemorySplit:
        """Bytes set aside for all it has."""

    @property
    def num_host_blocks(self) -> int:
        """Blocks of host memory, ids from num_blocks on; only copies name them."""

    @property
    def attention_balance(self) -> float:
        """Context at which a token's attention takes as long as its products; inf if no layer sees all."""

    def block_seconds(self) -> float:
        """Seconds that a block's copy to host memory takes, measured by copying: before any block is used."""

    @property
    def block_bytes(self) -> int:
        """Bytes of one KV block, the layers of its group together."""

    @property
    def model_len(self) -> int:
        """Positions the model was made for."""

    @property
    def windows(self) -> tuple[Window, ...]:
        """Positions a token sees, its own included, in the layers of each KV group; None for all."""

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 .. vocab_size - 1."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a completion unless the request ignores them."""

    def run(self, plan: StepPlan) -> SampledTokens:
        """Change the slots, make the copies, compute one step.

        An exception fails every sequence in the plan; a row's error only its own.
        """

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """All checks and packing. Raises AdapterTooLarge, AdapterMismatch or MemoryError."""

    def change_slots(self, changes: Iterable[SlotChange]) -> None:
        """Let slots 1 .. adapter_slots hold prepared adapters, or none; between two steps."""
