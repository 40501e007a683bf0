"""Whether an adapter fits a base model: its base, its modules, its shapes, its ranks."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from lora.adapter import Adapter
from lora.digest import is_digest
from lora.errors import LimitExceeded, MissingTensors, UnmatchedTensors, WrongBase, WrongShape
from lora.patterns import compile_layers, compile_pattern
from lora.peft_config import ALL_LINEAR, AdapterConfig
from lora.tensor_names import PairInfo

_OUTPUT_LAYER = "lm_head"
_LAYER_NUMBER = re.compile(r".*?\.[^.]*\.(?P<number>\d+)\.")

_Prefix = tuple[str, str]
_SAME: _Prefix = ("", "")

# How other ways of holding the same decoder name its modules: (adapter's prefix, served model's prefix).
_PREFIXES: tuple[_Prefix, ...] = (
    _SAME,
    ("layers.", "model.layers."),
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("module.model.", "model."),
    ("_orig_mod.model.", "model."),
)


@dataclass(frozen=True, slots=True)
class MatchedModule:
    """One module of the served model and the adapter's pair for it."""

    pair: PairInfo
    rank: int
    scale: float


@dataclass(frozen=True, slots=True)
class MatchReport:
    """What fits where. `mapped_prefix` is (adapter's, served model's) if names had to be translated."""

    modules: Mapping[str, MatchedModule]
    base_match: Literal["digest", "name", "forced"]
    mapped_prefix: tuple[str, str] | None
    warnings: tuple[str, ...]


def check_against(
    adapter: Adapter,
    targets: Mapping[str, tuple[int, int]],
    *,
    base_digest: str,
    base_names: Collection[str],
    max_rank: int,
    force: bool = False,
) -> MatchReport:
    """Match every tensor with a module of the base. `targets`: module name -> (out, in) features.

    `force` accepts another base (with a warning) and nothing else. Warns of an adapter whose lora_B are all
    zero, as they are before training. Raises WrongBase, LimitExceeded, UnmatchedTensors, MissingTensors or
    WrongShape.
    """
    base_match, warnings = _check_base(adapter.config, base_digest, base_names, force)
    if adapter.rank > max_rank:
        raise LimitExceeded("adapter rank", adapter.rank, max_rank)
    prefix, renamed = _map_names(adapter.pairs, targets)
    mapped = None if prefix == _SAME else prefix
    if mapped:
        warnings = (*warnings, f"module names {mapped[0]}* were read as {mapped[1]}*")
    _check_targets(adapter, targets, prefix, renamed)
    modules = {
        name: _match(adapter.config, renamed[name], adapter.pairs[renamed[name]], targets[name])
        for name in sorted(renamed)
    }
    if _changes_nothing(adapter):
        warnings = (*warnings, "the adapter is identical to the base: every lora_B is zero")
    return MatchReport(modules, base_match, mapped, warnings)


def _changes_nothing(adapter: Adapter) -> bool:
    """Reads of the weights as far as the first lora_B that is not zero."""
    with adapter.weights_file.open("rb") as file:
        for pair in adapter.pairs.values():
            file.seek(pair.b.start)
            if file.read(pair.b.size).count(0) != pair.b.size:
                return False
    return True


def _check_base(
    config: AdapterConfig, base_digest: str, base_names: Collection[str], force: bool
) -> tuple[Literal["digest", "name", "forced"], tuple[str, ...]]:
    """A revision that is a digest decides alone; otherwise the base's name must be one of ours."""
    if is_digest(config.revision):
        if config.revision == base_digest:
            return "digest", ()
        got, allowed = config.revision, [base_digest]
    else:
        got, allowed = config.base_model_name_or_path, sorted(base_names)
        if got in base_names:
            unchecked = f"revision {config.revision!r} is not a digest and was not compared"
            return "name", (unchecked,) if config.revision else ()
    error = WrongBase(got, allowed)
    if not force:
        raise error
    return "forced", (f"loaded by force: {error}",)


def _map_names(
    pairs: Mapping[str, PairInfo], targets: Mapping[str, tuple[int, int]]
) -> tuple[_Prefix, dict[str, str]]:
    """The prefix under which every pair finds its module, and module -> name in the adapter."""
    best: tuple[_Prefix, dict[str, str]] = (_SAME, {})
    for prefix in _PREFIXES:
        renamed = {_swap(name, *prefix): name for name in pairs}
        found = {module: name for module, name in renamed.items() if module in targets}
        if len(found) == len(pairs):
            return prefix, found
        if len(found) > len(best[1]):
            best = (prefix, found)
    matched = set(best[1].values())
    lost = [pair for name, pair in sorted(pairs.items()) if name not in matched]
    raise UnmatchedTensors("the base model has no such modules", _keys(lost), 2 * len(matched))


def _swap(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name.startswith(old) else name


def _check_targets(
    adapter: Adapter, targets: Mapping[str, tuple[int, int]], prefix: _Prefix, renamed: Mapping[str, str]
) -> None:
    """The modules that the config targets and those that have tensors must be the same."""
    expected = {
        module
        for module in targets
        if is_targeted(adapter.config, renamed.get(module) or _swap(module, prefix[1], prefix[0]))
    }
    extra = [adapter.pairs[name] for module, name in sorted(renamed.items()) if module not in expected]
    if extra:
        matched = 2 * (len(renamed) - len(extra))
        raise UnmatchedTensors("adapter_config.json does not target these modules", _keys(extra), matched)
    if missing := sorted(expected - renamed.keys()):
        raise MissingTensors(missing)


def is_targeted(config: AdapterConfig, module: str) -> bool:
    """Whether PEFT would put LoRA on a linear layer of this name (the name in the model that was trained)."""
    if _is_excluded(config, module):
        return False
    if config.target_modules == ALL_LINEAR:
        return module.rpartition(".")[2] != _OUTPUT_LAYER
    if isinstance(config.target_modules, str):
        return compile_pattern("target_modules", config.target_modules).fullmatch(module) is not None
    if module in config.target_modules:
        return True
    return _ends_with_any(module, config.target_modules) and _in_layers(config, module)


def _is_excluded(config: AdapterConfig, module: str) -> bool:
    if isinstance(config.exclude_modules, str):
        return compile_pattern("exclude_modules", config.exclude_modules).fullmatch(module) is not None
    return module in config.exclude_modules or _ends_with_any(module, config.exclude_modules)


def _ends_with_any(module: str, names: Collection[str]) -> bool:
    return any(module.endswith(f".{name}") for name in names)


def _in_layers(config: AdapterConfig, module: str) -> bool:
    """layers_to_transform looks at the first number after layers_pattern, or after any name without one."""
    if config.layers_to_transform is None:
        return True
    for name in config.layers_pattern:
        found = compile_layers(name).match(module)
        if found:
            return int(found["number"]) in config.layers_to_transform
    if config.layers_pattern:
        return False
    found = _LAYER_NUMBER.match(module)
    return found is not None and int(found["number"]) in config.layers_to_transform


def _match(config: AdapterConfig, name: str, pair: PairInfo, size: tuple[int, int]) -> MatchedModule:
    rank, (outputs, inputs) = config.rank_of(name), size
    for tensor, expected in ((pair.a, (rank, inputs)), (pair.b, (outputs, rank))):
        if tensor.shape != expected:
            raise WrongShape(tensor.name, expected, tensor.shape)
    return MatchedModule(pair, rank, config.scale_of(name))


def _keys(pairs: Collection[PairInfo]) -> list[str]:
    return [tensor.name for pair in pairs for tensor in (pair.a, pair.b)]
