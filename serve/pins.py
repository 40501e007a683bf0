"""Which adapters the replicas keep: told to each when it is met and whenever the registry's pins change.

Soft state on the replicas, the truth is the registry's `pinned`: a replica that starts anew is told before
anybody has asked for the adapters. Several gateways may tell; a replica heeds the newest registry.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from lora.registry import RegistrySnapshot
from serve.errors import RemoteError, ReplicaLost
from serve.fleet import Fleet, Member
from serve.routing import is_forced

EVERY_S = 0.5
RETRY_S = 5.0
"""How long a replica that could not load a pinned adapter is left alone."""

Wanted = dict[str, bool]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a replica was last told. `again_at`: when to repeat it, where it could not do it."""

    wanted: Wanted
    again_at: float | None


class Pins:
    """Keeps the replicas of one gateway's fleet at the pins of its registry snapshot."""

    def __init__(self, fleet: Fleet, snapshot: Callable[[], RegistrySnapshot]) -> None:
        self._fleet = fleet
        self._snapshot = snapshot
        self._told: dict[str, _Told] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now, and go on in the background."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Look no more."""
        tasks = [task for task in (self._task, *self._telling.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def tell(self, base_model: str) -> None:
        """Tell every replica for which something has changed, and return when they have done it.

        A replica that cannot load a pinned adapter is told again later; it serves on meanwhile.
        """
        members = self._fleet.members(base_model)
        await asyncio.gather(*(self._tell(member) for member in members if self._is_due(member)))

    async def restore(self, base_model: str) -> None:
        """Tell every replica anew, also where nothing has changed: somebody else has pinned there."""
        for member in self._fleet.members(base_model):
            self._told.pop(member.report.replica, None)
        await asyncio.gather(*map(self._tell, self._fleet.members(base_model)))

    def _wanted(self, base_model: str) -> Wanted:
        """digest -> whether it was forced onto the base model."""
        rows = [row for row in self._snapshot().pinned if row.base_model == base_model]
        return {row.digest: is_forced(row) for row in rows}

    def _is_due(self, member: Member) -> bool:
        wanted = self._wanted(member.report.base_model)
        told = self._told.get(member.report.replica, _Told({}, None))
        return wanted != told.wanted or (told.again_at is not None and time.monotonic() >= told.again_at)

    async def _tell(self, member: Member) -> None:
        wanted, epoch = self._wanted(member.report.base_model), self._snapshot().epoch
        failures: dict[str, str] = {}
        try:
            failures = await member.link.call("keep", epoch, wanted)
        except ReplicaLost:
            return
        except RemoteError as error:
            failures = {"all": str(error)}
        for digest, why in failures.items():
            logger.warning(
                "%s does not keep %s: %s", member.report.replica, digest, why, extra={"action": "pin_failed"}
            )
        again_at = time.monotonic() + RETRY_S if failures else None
        self._told[member.report.replica] = _Told(wanted, again_at)

    async def _follow(self) -> None:
        while True:
            members = {member.report.replica: member for member in self._fleet.members()}
            self._told = {name: told for name, told in self._told.items() if name in members}
            for name, member in members.items():
                if name not in self._telling and self._is_due(member):
                    self._begin(name, member)
            await asyncio.sleep(EVERY_S)

    def _begin(self, name: str, member: Member) -> None:
        """One that loads slowly must not keep the others waiting."""
        task = asyncio.get_running_loop().create_task(self._tell(member))
        self._telling[name] = task
        task.add_done_callback(lambda _: self._telling.pop(name))
