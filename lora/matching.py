"""Whether an adapter fits a base model: its base, its modules, its tensors, its shapes, its ranks."""

from collections.abc import Collection, Mapping
from typing import Literal

from lora.adapter import Adapter
from lora.asked import Asked, asked_tensors
from lora.digest import is_digest
from lora.errors import MissingTensors, RankTooLarge, UnmatchedTensors, UnsupportedFeature, WrongBase
from lora.match_report import MatchedModule, MatchReport
from lora.peft_config import AdapterConfig
from lora.renaming import SAME, Renaming, find_renaming
from lora.shapes import check_shapes
from lora.targeting import is_saved
from lora.targets import HEAD, BaseTargets
from lora.tensor_names import Part, Parts

_OWN = frozenset({Part.WEIGHT, Part.BIAS, Part.BASE_WEIGHT, Part.BASE_BIAS})
"""Parts of a module that is trained as a whole."""

_Renamed = Mapping[str, str]
"""Module of the base -> its name in the adapter."""


def check_against(
    adapter: Adapter,
    targets: BaseTargets,
    *,
    base_digest: str,
    base_names: Collection[str],
    max_rank: int,
    force: bool = False,
) -> MatchReport:
    """Match every tensor with a module of the base, and every tensor that the config asks for with the file.

    `force` accepts another base (with a warning) and nothing else. Raises WrongBase, RankTooLarge,
    UnmatchedTensors, MissingTensors, WrongShape, WrongVocabulary, OutsideVocabulary or UnsupportedFeature.
    """
    base_match, warnings = _check_base(adapter.config, base_digest, base_names, force)
    if adapter.rank > max_rank:
        raise RankTooLarge("adapter rank", adapter.rank, max_rank)
    renaming, renamed = _map_names(adapter, targets)
    asked = asked_tensors(
        adapter.config, targets, lambda module: renamed.get(module) or renaming.to_adapter(module)
    )
    found = {
        module: _told(adapter.modules[name], asked.required[module], module in (targets.embedding, HEAD))
        for module, name in sorted(renamed.items())
    }
    _check_presence(found, asked)
    modules = {
        module: _matched(adapter.config, renamed[module], parts, asked.token_ids.get(module, ()))
        for module, parts in found.items()
    }
    check_shapes(modules, targets)
    mapped = adapter.mapped
    if renaming != SAME:
        mapped = (*mapped, f"{renaming.old}* as {renaming.new}*")
    return MatchReport(
        modules=modules,
        base_match=base_match,
        tokens_in_head=asked.tokens_in_head,
        mapped=mapped,
        warnings=(*warnings, *(f"names of tensors were mapped: {how}" for how in mapped)),
        files=adapter.files,
    )


def _check_base(
    config: AdapterConfig, base_digest: str, base_names: Collection[str], force: bool
) -> tuple[Literal["digest", "name", "forced"], tuple[str, ...]]:
    """A revision that is a digest decides alone; otherwise the base's name must be one of ours.

    Of a name whose revisions are known there is also `name@revision` among ours, and an adapter that tells
    a revision must tell one of those.
    """
    if is_digest(config.revision):
        if config.revision == base_digest:
            return "digest", ()
        got, allowed = config.revision, [base_digest]
    else:
        got, allowed = config.base_model_name_or_path, sorted(base_names)
        if got in base_names:
            revisions = sorted(name for name in base_names if name.startswith(f"{got}@"))
            if not config.revision or f"{got}@{config.revision}" in revisions:
                return "name", ()
            if not revisions:
                return "name", (f"revision {config.revision!r} is not a digest and was not compared",)
            got, allowed = f"{got}@{config.revision}", revisions
    error = WrongBase(got, allowed)
    if not force:
        raise error
    return "forced", (f"loaded by force: {error}",)


def _map_names(adapter: Adapter, targets: BaseTargets) -> tuple[Renaming, _Renamed]:
    """The renaming under which every name of the adapter is a module of the base, and what it gives."""
    known = {*targets.linear, *targets.norms, targets.embedding}
    renaming = find_renaming(adapter.modules, known, targets.embedding)
    renamed: dict[str, str] = {}
    lost: list[str] = []
    for name in sorted(adapter.modules):
        module = renaming.to_base(name)
        if module not in known or renamed.setdefault(module, name) != name:
            lost.append(name)
    if lost:
        _refuse_saved(adapter, lost)
        matched = sum(len(adapter.modules[name]) for name in renamed.values())
        raise UnmatchedTensors("the base model has no such modules", _keys(adapter, lost), matched)
    return renaming, renamed


def _refuse_saved(adapter: Adapter, lost: list[str]) -> None:
    """Modules that were trained whole, such as a classifier, are told as what they are."""
    saved = [
        name for name in lost if _OWN.issuperset(adapter.modules[name]) and is_saved(adapter.config, name)
    ]
    if len(saved) == len(lost):
        raise UnsupportedFeature("modules_to_save", saved, "it may name lm_head, norms and the token table")


def _told(parts: Parts, required: frozenset[Part], table: bool) -> Parts:
    """Unless it was to be saved, the weight of a table is a copy of the base's, as PEFT adds on its own."""
    if not table or Part.WEIGHT in required or Part.WEIGHT not in parts or Part.BASE_WEIGHT in parts:
        return parts
    return {Part.BASE_WEIGHT if part is Part.WEIGHT else part: tensor for part, tensor in parts.items()}


def _check_presence(found: Mapping[str, Parts], asked: Asked) -> None:
    extra = [
        tensor.name
        for module, parts in found.items()
        for part, tensor in parts.items()
        if part not in asked.required[module] | asked.allowed[module]
    ]
    if extra:
        matched = sum(map(len, found.values())) - len(extra)
        reason = "adapter_config.json does not target these modules, or not with such tensors"
        raise UnmatchedTensors(reason, extra, matched)
    missing = [
        f"{module}.{part}"
        for module, parts in asked.required.items()
        for part in sorted(parts - found.get(module, {}).keys())
    ]
    if missing:
        raise MissingTensors(sorted(missing))


def _matched(config: AdapterConfig, name: str, parts: Parts, token_ids: tuple[int, ...]) -> MatchedModule:
    if Part.A not in parts and Part.EMBEDDING_A not in parts:
        return MatchedModule(parts, 0, 1.0, token_ids)
    return MatchedModule(parts, config.rank_of(name), config.scale_of(name), token_ids)


def _keys(adapter: Adapter, names: Collection[str]) -> list[str]:
    return [tensor.name for name in names for tensor in adapter.modules[name].values()]
