"""One adapter beside a model that embeds: prepared once, then laid over the tokens of a pass.

Texts of different adapters are never in one pass, so each adapter keeps its matrices stacked for itself and
has no slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from engine.activation import activation
from engine.adapter_fit import AdapterFit
from engine.adapter_weights import AdapterWeights
from engine.models.adapter_batch import AdapterBatch
from engine.models.lora_stack import Stack, stack_pairs
from engine.models.module_groups import ModuleGroup

_SLOT = 1


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TextAdapter:
    """See engine.ports.PreparedAdapter. weights: all of it but the pairs, which are in `stack`."""

    weights: AdapterWeights
    stack: Stack
    nbytes: int

    @property
    def digest(self) -> str:
        """Of the adapter's content."""
        return self.weights.digest

    @property
    def invocation(self) -> tuple[int, ...]:
        """Tokens that switch it on."""
        return self.weights.invocation

    def held(self, text: Sequence[int]) -> Sequence[int]:
        """The part of a text for which the adapter holds: its end, nothing or all of it."""
        return text[activation(text, self.invocation) :]

    def over(self, texts: Iterable[Sequence[int]]) -> AdapterBatch | None:
        """The adapter for the tokens of `texts`, one text after another; None where it holds for none."""
        slots: list[int] = []
        for text in texts:
            held = len(self.held(text))
            slots += [0] * (len(text) - held) + [_SLOT] * held
        return AdapterBatch(self.stack, {_SLOT: self.weights}, torch.tensor(slots)) if any(slots) else None


def prepare_text_adapter(
    weights: AdapterWeights, fit: AdapterFit, groups: Iterable[ModuleGroup]
) -> TextAdapter:
    """Check an adapter and stack its pairs. Raises AdapterTooLarge or AdapterMismatch."""
    fitted = fit.whole(weights)
    stack = stack_pairs({_SLOT: fitted}, groups)
    return TextAdapter(replace(fitted, modules={}), stack, fitted.nbytes)
