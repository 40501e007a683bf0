import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from engine.records import EngineStats
from serve.directory import ReplicaReport, View
from serve.errors import NoReplica, RemoteError, ReplicaLost
from serve.fleet import LOAD_PENALTY, Fleet
from serve.link.client import ReplicaLink


class Link:
    """What Fleet uses of a ReplicaLink."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.alive = True
        self.answer: Any = None

    async def call(self, method: str, *args: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [method, *args]

    async def close(self) -> None:
        self.alive = False


class World:
    """A directory and the links that are made to what it names."""

    def __init__(self) -> None:
        self.view = View()
        self.links: dict[int, Link] = {}
        self.unreachable: set[int] = set()
        self.asked = 0
        self.asked_often = asyncio.Event()
        self.connected = asyncio.Event()
        self.fleet = Fleet(self.exchange, "token", connect=self.connect)

    async def exchange(self) -> View:
        self.asked += 1
        if self.asked >= 5:
            self.asked_often.set()
        return self.view

    async def connect(self, host: str, port: int, token: str) -> ReplicaLink:
        if port in self.unreachable:
            raise ReplicaLost
        self.links[port] = Link()
        self.connected.set()
        return cast(ReplicaLink, self.links[port])

    async def see(self, *reports: ReplicaReport) -> None:
        self.view = View(reports, 0)
        await self.fleet.refresh()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def report(port: int, base: str = "m", adapters: tuple[str, ...] = (), **stats: int) -> ReplicaReport:
    return ReplicaReport(
        replica=f"r{port}",
        base_model=base,
        host="h",
        port=port,
        max_model_len=100,
        adapter_slots=4,
        healthy=True,
        stats=EngineStats(**stats),
        adapters={digest: {} for digest in adapters},
    )


async def test_it_connects_to_what_the_directory_names() -> None:
    world = World()
    await world.see(report(1), report(2, "other"))
    assert [member.report.replica for member in world.fleet.members()] == ["r1", "r2"]
    assert [member.report.replica for member in world.fleet.members("other")] == ["r2"]


async def test_an_unknown_base_model_has_no_replica() -> None:
    world = World()
    await world.see(report(1))
    with pytest.raises(NoReplica, match="'other'"):
        world.fleet.pick("other", None)


async def test_the_least_busy_replica_is_chosen() -> None:
    world = World()
    await world.see(report(1, running=3), report(2, running=1, waiting=1), report(3))
    world.links[3].in_flight = 5
    assert world.fleet.pick("m", None).report.replica == "r2"


async def test_a_replica_that_holds_the_adapter_is_preferred_until_it_is_much_busier() -> None:
    world = World()
    await world.see(report(1, adapters=("d",)), report(2))
    world.links[1].in_flight = LOAD_PENALTY
    assert world.fleet.pick("m", "d").report.replica == "r1"
    world.links[1].in_flight = LOAD_PENALTY + 1
    assert world.fleet.pick("m", "d").report.replica == "r2"


async def test_a_hot_adapter_spreads_and_a_cold_one_does_not_wait_behind_it() -> None:
    world = World()
    await world.see(report(1, adapters=("hot",)), report(2, adapters=("cold",)), report(3))
    links = world.links.values()
    answered: Counter[str] = Counter()
    ahead_of_cold, longest = [], 0
    for number in range(600):  # nine of ten for one adapter, as many as three replicas can answer
        digest = "cold" if number % 10 == 9 else "hot"
        member = world.fleet.pick("m", digest)
        link = world.links[member.report.port]
        if digest == "cold":
            ahead_of_cold.append(link.in_flight)
        answered[f"{digest} on {member.report.replica}"] += 1
        link.in_flight += 1
        longest = max(longest, link.in_flight)
        if number % 3 == 2:
            for each in links:
                each.in_flight = max(each.in_flight - 1, 0)
    assert {"hot on r1", "hot on r2", "hot on r3"} <= answered.keys()
    assert longest <= LOAD_PENALTY + 2
    assert max(ahead_of_cold) <= LOAD_PENALTY + 1


async def test_an_adapter_on_its_way_counts_as_there() -> None:
    world = World()
    await world.see(report(1), report(2))
    first = world.fleet.pick("m", "d")
    first.link.in_flight = 3  # type: ignore[misc]  # the link is a stand-in
    assert world.fleet.pick("m", "d") is first


async def test_an_unhealthy_replica_is_the_last_choice() -> None:
    world = World()
    sick = report(1)
    await world.see(
        ReplicaReport(**{**{name: getattr(sick, name) for name in sick.__slots__}, "healthy": False})
    )
    assert world.fleet.pick("m", None).report.replica == "r1"
    await world.see(world.view.replicas[0], report(2, running=50))
    assert world.fleet.pick("m", None).report.replica == "r2"


async def test_a_dead_link_is_dropped_and_made_anew() -> None:
    world = World()
    await world.see(report(1))
    dead = world.links[1]
    dead.alive = False
    assert world.fleet.members() == []
    await world.see(report(1))
    assert world.links[1] is not dead
    assert len(world.fleet.members()) == 1


async def test_a_replica_that_cannot_be_reached_is_tried_again() -> None:
    world = World()
    world.unreachable = {1}
    await world.see(report(1))
    assert world.fleet.members() == []
    world.unreachable = set()
    await world.see(report(1))
    assert len(world.fleet.members()) == 1


async def test_a_living_link_outlasts_the_directorys_memory() -> None:
    world = World()
    await world.see(report(1))
    await world.see()
    assert len(world.fleet.members()) == 1


async def test_a_call_reaches_every_replica_of_the_base_model() -> None:
    world = World()
    await world.see(report(1), report(2), report(3, "other"))
    assert await world.fleet.call_all("m", "load", "d") == {"r1": ["load", "d"], "r2": ["load", "d"]}


async def test_one_refusal_is_raised_and_a_loss_is_not() -> None:
    world = World()
    await world.see(report(1), report(2))
    world.links[1].answer = ReplicaLost()
    assert await world.fleet.call_all("m", "load", "d") == {"r2": ["load", "d"]}
    world.links[2].answer = RemoteError("NotFinite", "tensor x")
    with pytest.raises(RemoteError):
        await world.fleet.call_all("m", "load", "d")


async def test_a_call_that_nobody_answers_fails() -> None:
    world = World()
    await world.see(report(1))
    world.links[1].answer = ReplicaLost()
    with pytest.raises(NoReplica):
        await world.fleet.call_all("m", "load", "d")


async def test_the_directory_is_asked_often_only_until_every_replica_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serve.fleet.UNSETTLED_EVERY_S", 0.001)
    monkeypatch.setattr("serve.fleet.SETTLED_EVERY_S", 3600.0)
    world = World()
    world.view, world.unreachable = View((report(1),), 0), {1}
    world.fleet.start()
    await asyncio.wait_for(world.asked_often.wait(), 10)
    world.unreachable = set()
    await asyncio.wait_for(world.connected.wait(), 10)
    await asyncio.sleep(0.02)
    asked = world.asked
    await asyncio.sleep(0.02)
    assert world.asked == asked
    await world.fleet.close()
