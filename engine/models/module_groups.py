"""Linear modules that read the same input, by their full names, as decoders in torch compute them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.adapter_targets import HEAD
from engine.modelspec import ModelSpec


@dataclass(frozen=True, slots=True)
class ModuleGroup:
    """Modules whose outputs lie side by side, and the width of each output."""

    names: tuple[str, ...]
    widths: tuple[int, ...]


def layer_group(spec: ModelSpec, layer: int, group: str) -> ModuleGroup:
    """Group `group` of one layer."""
    modules, shapes = spec.groups[group], spec.module_shapes()
    names = tuple(f"{spec.layers_at}.{layer}.{module}" for module in modules)
    return ModuleGroup(names, tuple(shapes[module][0] for module in modules))


def head_group(vocab: int) -> ModuleGroup:
    """The head, alone."""
    return ModuleGroup((HEAD,), (vocab,))


def all_groups(spec: ModelSpec) -> list[ModuleGroup]:
    """Those of every layer, and the head."""
    layers = [layer_group(spec, layer, group) for layer in range(spec.num_layers) for group in spec.groups]
    return [*layers, head_group(spec.vocab_size)]
