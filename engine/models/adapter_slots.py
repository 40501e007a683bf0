"""Which adapter each slot refers to, for decoders in torch. Knows no policy of who is bound, no families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.adapter_fit import AdapterFit
from engine.adapter_weights import AdapterWeights
from engine.models.adapter_batch import AdapterBatch
from engine.models.lora_stack import EMPTY, stack_pairs
from engine.models.module_groups import all_groups
from engine.modelspec import ModelSpec
from engine.ports import PreparedAdapter


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FittedAdapter:
    """A prepared adapter of the reference backend: checked, in the model's dtype, scales within B."""

    weights: AdapterWeights

    @property
    def digest(self) -> str:
        """Of the adapter's content."""
        return self.weights.digest

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self.weights.nbytes

    @property
    def invocation(self) -> tuple[int, ...]:
        """Tokens that switch it on."""
        return self.weights.invocation


class AdapterSlots:
    """Adapters by slot number. Refers to them from `bind` to `unbind`; owns the stack last used."""

    def __init__(self, spec: ModelSpec, max_rank: int, dtype: torch.dtype) -> None:
        self._targets = spec.adapter_targets
        self._groups = all_groups(spec)
        self._max_rank = max_rank
        self._dtype = dtype
        self._bound: dict[int, FittedAdapter] = {}
        self._stack = EMPTY

    def prepare(self, weights: AdapterWeights) -> FittedAdapter:
        """Changes nothing here: any thread may. Raises AdapterTooLarge or AdapterMismatch."""
        fit = AdapterFit(weights.digest, self._targets, self._dtype, self._max_rank)
        return FittedAdapter(fit.whole(weights))

    def bind(self, slot: int, prepared: PreparedAdapter) -> None:
        """Give `slot` to an adapter, whatever it held. Raises ValueError for one of another backend."""
        if not isinstance(prepared, FittedAdapter):
            raise ValueError(f"adapter {prepared.digest!r} was prepared by another backend")
        self.unbind(slot)
        self._bound[slot] = prepared

    def unbind(self, slot: int) -> None:
        """Empty `slot`, if it is not empty."""
        if slot in self._stack.slots:
            self._stack = EMPTY
        self._bound.pop(slot, None)

    def batch(self, slots: Sequence[int], counts: Sequence[int]) -> AdapterBatch | None:
        """slots[i] is the slot of the next counts[i] tokens; None when none of them has an adapter."""
        active = {slot: self._bound[slot].weights for slot in sorted(set(slots)) if slot in self._bound}
        if not active:
            return None
        # A stack that holds more than the step needs is used as it is, unless half of it would idle.
        fits = active.keys() <= set(self._stack.slots) and 2 * len(active) >= len(self._stack.slots)
        if not fits:
            self._stack = stack_pairs(active, self._groups)
        held = [slot if slot in active else 0 for slot in slots]
        token_slots = torch.repeat_interleave(torch.tensor(held), torch.tensor(counts))
        return AdapterBatch(self._stack, active, token_slots)
