"""Rotary embedding as a model's config.json states it: kind, base, options. Torch-free; computes no angle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import UnsupportedModel

Json = Mapping[str, Any]

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding parameters; `options` holds the keys that belong to `kind` (factor, beta_fast, ...).

    `dynamic` stretches only positions past `max_position`, which are never served, so it equals `default`.
    `longrope` has factors for short and for long texts. One of the two holds for all that a deployment
    serves, since cached keys are shared between requests of any length: the long one where `length`, the
    positions served, is over the length the model was first trained for. `partial` is the part of each
    head, from its start, that turns. Kind `none` is that of a model with learned positions.
    """

    kind: str
    theta: float
    options: Mapping[str, Any]
    partial: float = 1.0
    length: int = 0


NO_ROPE = RopeSpec(kind="none", theta=0.0, options={})


def read_rope(config: Json, head_dim: int, kinds: tuple[str, ...], allow_partial: bool = False) -> RopeSpec:
    """Accept both shapes: `rope_parameters` (new) and `rope_theta` beside `rope_scaling` (old).

    Raises UnsupportedModel for a kind outside `kinds`, a part the family does not know, factors that do
    not fit the head.
    """
    raw = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = str(raw.pop("rope_type", None) or raw.pop("type", None) or "default")
    kind = "longrope" if kind == "su" else kind
    raw.pop("type", None)
    if kind not in kinds:
        raise UnsupportedModel(f"rope_type {kind} is not supported; supported: {', '.join(kinds)}")
    partial = raw.pop("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if partial != 1.0 and not (allow_partial and 0.0 < partial < 1.0):
        allowed = "a part of 1" if allow_partial else "1.0"
        raise UnsupportedModel(f"partial_rotary_factor {partial} is not supported; supported: {allowed}")
    theta = float(raw.pop("rope_theta", None) or config.get("rope_theta") or 10000.0)
    length = int(config["max_position_embeddings"])
    raw.setdefault("original_max_position_embeddings", config.get("original_max_position_embeddings", length))
    if kind == "longrope":
        _check_factors(raw, int(head_dim * partial) // 2)
        if raw.get("factor") is None:
            raw["factor"] = length / raw["original_max_position_embeddings"]
    return RopeSpec(kind=kind, theta=theta, options=raw, partial=float(partial), length=length)


def _check_factors(options: Json, count: int) -> None:
    for key in ("short_factor", "long_factor"):
        factors = options.get(key)
        if not isinstance(factors, list) or len(factors) != count:
            got = f"of {len(factors)} numbers" if isinstance(factors, list) else repr(factors)
            raise UnsupportedModel(f"longrope {key} is {got}; this head needs {count} numbers")
