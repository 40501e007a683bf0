"""The registry as a router sees it: names to what answers them, and the sticky split. Pure data, no database.

A snapshot never changes; a new one takes its place. Names are opaque and are looked up whole, in this order:
adapter id, endpoint, base model. An unknown name is nothing, never the base model.
"""

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

from db.rows import AdapterRow, BaseModelRow, EndpointRow, RegistryRows, Variant

BUCKETS = 10_000
_SEPARATOR = "\x1f"
_HEX_DIGITS = 15  # 60 bits


def bucket(endpoint: str, experiment: str, key: str) -> int:
    """Sticky bucket of a key, 0 to 9999; equal to serve.bucket in SQL."""
    text = _SEPARATOR.join((endpoint, experiment, key))
    return int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HEX_DIGITS], 16) % BUCKETS


@dataclass(frozen=True, slots=True)
class Target:
    """What a name stands for. `endpoint` is set for an endpoint, `adapter_id` for an adapter."""

    kind: Literal["adapter", "endpoint", "base"]
    name: str
    base_model: str
    endpoint: str | None = None
    adapter_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The version that answers one request. The base model: `adapter_id` and `digest` are None.

    `assigned_id` is the adapter that the name or the split chose, also where the local kill switch makes
    another answer. `bucket` and `experiment` are set where an endpoint was asked for.
    """

    adapter_id: str | None
    digest: str | None
    assigned_id: str | None
    variant: Variant
    bucket: int | None = None
    experiment: str | None = None


@dataclass(frozen=True, slots=True)
class Canary:
    """The buckets [start, end) of one endpoint go to this adapter."""

    adapter: AdapterRow
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """One moment of the registry. Make it with from_rows."""

    epoch: int
    base_models: Mapping[str, BaseModelRow]
    endpoints: Mapping[str, EndpointRow]
    adapters: Mapping[str, AdapterRow]
    pinned: tuple[AdapterRow, ...]
    """What every replica keeps, also while a local stop lets it answer nobody here."""
    of_endpoints: Set[str]
    """Ids of the adapters that are prod or canary."""
    _prod: Mapping[str, AdapterRow]
    _canaries: Mapping[str, tuple[Canary, ...]]
    _held: Set[str]
    """Ids of adapters that keep their part in an endpoint and may not answer for it here."""

    @classmethod
    def from_rows(cls, rows: RegistryRows, *, blocked: Set[str] = frozenset()) -> "RegistrySnapshot":
        """Index the rows. `blocked` digests answer nobody.

        In the place of a canary the prod adapter answers then, in the place of that the base model.
        """
        parts = [row for row in rows.adapters if row.status in ("canary", "prod")]
        canaries: dict[str, list[Canary]] = {}
        for row in parts:
            if row.status == "canary" and row.endpoint and row.canary_start is not None:
                end = row.canary_start + round(row.traffic_pct * 100)
                canaries.setdefault(row.endpoint, []).append(Canary(row, row.canary_start, end))
        return cls(
            epoch=rows.epoch,
            base_models={row.name: row for row in rows.base_models},
            endpoints={row.name: row for row in rows.endpoints},
            adapters={row.id: row for row in rows.adapters if row.digest not in blocked},
            pinned=tuple(row for row in rows.adapters if row.pinned),
            of_endpoints={row.id for row in parts},
            _prod={row.endpoint: row for row in parts if row.status == "prod" and row.endpoint},
            _canaries={endpoint: tuple(found) for endpoint, found in canaries.items()},
            _held={row.id for row in rows.adapters if row.digest in blocked} if blocked else frozenset(),
        )

    def resolve(self, name: str) -> Target | None:
        """What a client's name stands for; None for an unknown one."""
        if (adapter := self.adapters.get(name)) is not None and adapter.loaded:
            return Target("adapter", name, adapter.base_model, adapter_id=name)
        if (endpoint := self.endpoints.get(name)) is not None:
            return Target("endpoint", name, endpoint.base_model, endpoint=name)
        return Target("base", name, name) if name in self.base_models else None

    def prod_of(self, endpoint: str) -> AdapterRow | None:
        """The adapter that an endpoint serves outside its canaries; None for the base model."""
        return self._unless_held(self._prod.get(endpoint))

    def assign(self, target: Target, key: str) -> Assignment:
        """Fix the version for one request. `key` is the user's sticky key.

        `target` may come from an older snapshot; an adapter that has gone since raises KeyError.
        """
        if (name := target.adapter_id) is not None:
            return Assignment(name, self.adapters[name].digest, name, "direct")
        if target.endpoint is None:
            return Assignment(None, None, None, "base")
        experiment = self.endpoints[target.endpoint].experiment
        number = bucket(target.endpoint, experiment, key)
        canaries = self._canaries.get(target.endpoint, ())
        canary = next((item.adapter for item in canaries if item.start <= number < item.end), None)
        dealt = canary or self._prod.get(target.endpoint)
        assigned = None if dealt is None else dealt.id
        answering = self._unless_held(dealt) or self.prod_of(target.endpoint)
        if answering is None:
            return Assignment(None, None, assigned, "base", number, experiment)
        variant: Variant = "canary" if answering is canary else "prod"
        return Assignment(answering.id, answering.digest, assigned, variant, number, experiment)

    def _unless_held(self, row: AdapterRow | None) -> AdapterRow | None:
        return None if row is None or row.id in self._held else row
