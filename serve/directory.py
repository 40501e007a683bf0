"""Who is there: replicas say where they listen and how they fare, gateways say which registry they route by.

Soft state only. Everybody reports every two seconds and is forgotten after TTL_S; a directory that is started
anew is complete again by then, and meanwhile gateways keep the connections they have.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.records import EngineStats

REPORT_EVERY_S = 2.0
TTL_S = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """One replica at one moment. `adapters`: digest -> what its residency tells of it (plain data)."""

    replica: str
    base_model: str
    host: str
    port: int
    max_model_len: int
    adapter_slots: int
    healthy: bool
    stats: EngineStats
    adapters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """One gateway at one moment; `epoch` is the registry epoch it routes by."""

    gateway: str
    epoch: int


@dataclass(frozen=True, slots=True)
class View:
    """What a gateway learns in return. `lowest_epoch`: the oldest registry any live gateway routes by.

    `scribe`: the one live gateway that writes what only one may write.
    """

    replicas: tuple[ReplicaReport, ...] = ()
    lowest_epoch: int = 0
    scribe: str | None = None


class Directory:
    """The meeting point; one process, called through a Ray Serve handle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._replicas: dict[str, tuple[float, ReplicaReport]] = {}
        self._gateways: dict[str, tuple[float, GatewayReport]] = {}

    async def report(self, report: ReplicaReport) -> None:
        """A replica is alive."""
        self._replicas[report.replica] = (self._clock(), report)

    async def leave(self, replica: str) -> None:
        """A replica is about to stop."""
        self._replicas.pop(replica, None)

    async def exchange(self, report: GatewayReport) -> View:
        """A gateway is alive, and asks who else is."""
        now = self._clock()
        self._gateways[report.gateway] = (now, report)
        self._replicas = {name: item for name, item in self._replicas.items() if now - item[0] < TTL_S}
        self._gateways = {name: item for name, item in self._gateways.items() if now - item[0] < TTL_S}
        return View(
            tuple(item for _, item in self._replicas.values()),
            min(item.epoch for _, item in self._gateways.values()),
            min(self._gateways),
        )
