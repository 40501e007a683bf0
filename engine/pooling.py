"""Hidden states of a text's tokens to one vector, in the way its model folder asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from engine.errors import UnsupportedModel
from engine.modelspec import read_json

Pooling = Literal["mean", "first", "last"]

POOLINGS: Mapping[Pooling, Callable[[Tensor], Tensor]] = {
    "mean": lambda states: states.mean(0),
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
}
"""By name: states [tokens, hidden] of one text -> [hidden]."""

_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
_MODES: Mapping[str, Pooling] = {"mean": "mean", "cls": "first", "lasttoken": "last"}
_MODULES = ("Transformer", "Pooling", "Normalize")


def read_pooling(folder: Path, default: Pooling) -> Pooling:
    """What 1_Pooling/config.json, as sentence-transformers writes it, asks for; `default` without one.

    Raises UnsupportedModel for another pooling, for several, or for a module behind it that is not applied.
    """
    _check_modules(folder / "modules.json")
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return default
    config = read_json(path)
    asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    names = {**_FLAGS, **_MODES}
    if isinstance(mode := config.get("pooling_mode"), str):
        asked = [mode]
    if len(asked) != 1 or asked[0] not in names:
        met = ", ".join(asked) or "none"
        raise UnsupportedModel(f"pooling {met} is not supported; supported: one of {', '.join(_MODES)}")
    return names[asked[0]]


def pool(states: Tensor, lengths: Sequence[int], pooling: Pooling) -> Tensor:
    """states [T, hidden] of texts one after another -> float32 [texts, hidden]."""
    parts = torch.split(states.to(torch.float32), list(lengths))
    return torch.stack([POOLINGS[pooling](part) for part in parts])


def _check_modules(path: Path) -> None:
    if not path.exists():
        return
    try:
        kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in json.loads(path.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedModel(f"{path} is no list of modules: {error!r}") from error
    for kind in kinds:
        if kind not in _MODULES:
            raise UnsupportedModel(f"module {kind} is not supported; supported: {', '.join(_MODULES)}")
