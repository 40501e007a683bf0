"""The replicas as one gateway sees them: a connection to each, and the choice among them.

Owns the connections. A replica is usable while its connection lives, whatever the directory says of it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve.directory import ReplicaReport, View
from serve.errors import NoReplica, ReplicaLost
from serve.link.client import ReplicaLink, connect

# An adapter that is not resident costs its load: so many requests in flight are better than that.
LOAD_PENALTY = 8

SETTLED_EVERY_S = 1.0
"""How often the directory is asked while there is a connection to every replica that it names."""
UNSETTLED_EVERY_S = 0.25
"""How often while there is not: at the start, and when a replica has gone."""

Exchange = Callable[[], Awaitable[View]]
Connect = Callable[[str, int, str], Awaitable[ReplicaLink]]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """One connected replica. `expected`: digests sent to it since its last report."""

    report: ReplicaReport
    link: ReplicaLink
    expected: set[str] = field(default_factory=set)

    def cost(self, digest: str | None) -> int:
        """Requests it has, with a surcharge where the adapter would have to be loaded first."""
        others = self.report.stats.running + self.report.stats.waiting
        resident = digest is None or digest in self.report.adapters or digest in self.expected
        return max(self.link.in_flight, others) + (0 if resident else LOAD_PENALTY)


class Fleet:
    """Keeps one connection to every replica that the directory names."""

    def __init__(self, exchange: Exchange, token: str, *, connect: Connect = connect) -> None:
        self._exchange = exchange
        self._token = token
        self._connect = connect
        self._members: dict[str, Member] = {}
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self.view = View()

    def start(self) -> None:
        """Follow the directory from now on."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Follow no more, and end all connections."""
        tasks = [task for task in (self._task, *self._connecting.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(member.link.close() for member in self._members.values()))

    def members(self, base_model: str | None = None) -> list[Member]:
        """Live connections, of one base model or of all."""
        return [
            member
            for member in self._members.values()
            if member.link.alive and base_model in (None, member.report.base_model)
        ]

    def pick(self, base_model: str, digest: str | None) -> Member:
        """The replica with the least to do, those that hold the adapter preferred. Raises NoReplica."""
        members = self.members(base_model)
        healthy = [member for member in members if member.report.healthy] or members
        if not healthy:
            raise NoReplica(base_model)
        chosen = min(healthy, key=lambda member: member.cost(digest))
        if digest is not None:
            chosen.expected.add(digest)
        return chosen

    def ahead_of(self, priority: int) -> int:
        """Requests of this gateway under way whose priority comes before this one."""
        return sum(member.link.ahead_of(priority) for member in self.members())

    async def call_all(self, base_model: str, method: str, *args: Any) -> dict[str, Any]:
        """Call a control method on every replica of a base model; once all have ended, raise a failure.

        Returns each replica's answer.
        A replica that goes away meanwhile does not count: its successor loads what it is asked for.
        Raises NoReplica when none is left that answered.
        """
        members = self.members(base_model)
        calls = [member.link.call(method, *args) for member in members]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        answers: dict[str, Any] = {}
        for member, outcome in zip(members, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                answers[member.report.replica] = outcome
            elif not isinstance(outcome, ReplicaLost):
                raise outcome
        if not answers:
            raise NoReplica(base_model)
        return answers

    async def refresh(self) -> None:
        """Ask the directory now, and adapt the connections to its answer."""
        self.view = await self._exchange()
        self._apply(self.view.replicas)

    async def _follow(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception as error:  # whatever a Ray handle raises while the directory is being restarted
                logger.warning("directory away: %r", error, extra={"action": "directory_away"})
            await asyncio.sleep(SETTLED_EVERY_S if self._settled else UNSETTLED_EVERY_S)

    @property
    def _settled(self) -> bool:
        alive = {name for name, member in self._members.items() if member.link.alive}
        return bool(alive) and alive == {report.replica for report in self.view.replicas}

    def _apply(self, reports: Sequence[ReplicaReport]) -> None:
        for name in [name for name, member in self._members.items() if not member.link.alive]:
            del self._members[name]
        for report in reports:
            if member := self._members.get(report.replica):
                member.report = report
                member.expected = set()
            elif report.replica not in self._connecting:
                task = asyncio.get_running_loop().create_task(self._join(report))
                self._connecting[report.replica] = task

    async def _join(self, report: ReplicaReport) -> None:
        try:
            with contextlib.suppress(ReplicaLost):
                link = await self._connect(report.host, report.port, self._token)
                self._members[report.replica] = Member(report, link)
        finally:
            del self._connecting[report.replica]
