from typing import Any

from engine.records import EngineStats
from serve.directory import TTL_S, Directory, GatewayReport, ReplicaReport


def replica(name: str, **changes: Any) -> ReplicaReport:
    values: dict[str, Any] = {
        "replica": name,
        "base_model": "m",
        "host": "127.0.0.1",
        "port": 1,
        "max_model_len": 10,
        "adapter_slots": 2,
        "healthy": True,
        "stats": EngineStats(),
    }
    return ReplicaReport(**(values | changes))


async def test_gateways_learn_who_is_there() -> None:
    directory = Directory()
    await directory.report(replica("a"))
    await directory.report(replica("b"))
    await directory.report(replica("a", port=2))
    view = await directory.exchange(GatewayReport(gateway="g", epoch=3))
    assert {item.replica: item.port for item in view.replicas} == {"a": 2, "b": 1}


async def test_the_silent_are_forgotten() -> None:
    now = [0.0]
    directory = Directory(lambda: now[0])
    await directory.report(replica("a"))
    await directory.exchange(GatewayReport(gateway="old", epoch=1))
    now[0] = TTL_S + 1
    await directory.report(replica("b"))
    view = await directory.exchange(GatewayReport(gateway="new", epoch=7))
    assert [item.replica for item in view.replicas] == ["b"]
    assert view.lowest_epoch == 7


async def test_the_oldest_registry_in_use_is_known() -> None:
    directory = Directory()
    await directory.exchange(GatewayReport(gateway="a", epoch=4))
    view = await directory.exchange(GatewayReport(gateway="b", epoch=6))
    assert view.lowest_epoch == 4
    view = await directory.exchange(GatewayReport(gateway="a", epoch=6))
    assert view.lowest_epoch == 6


async def test_of_the_living_gateways_one_is_named_to_write() -> None:
    now = [0.0]
    directory = Directory(lambda: now[0])
    assert (await directory.exchange(GatewayReport(gateway="b", epoch=1))).scribe == "b"
    assert (await directory.exchange(GatewayReport(gateway="a", epoch=1))).scribe == "a"
    assert (await directory.exchange(GatewayReport(gateway="b", epoch=1))).scribe == "a"
    now[0] = TTL_S + 1
    assert (await directory.exchange(GatewayReport(gateway="b", epoch=1))).scribe == "b"


async def test_a_replica_that_leaves_is_gone_at_once() -> None:
    directory = Directory()
    await directory.report(replica("a"))
    await directory.leave("a")
    await directory.leave("a")
    assert (await directory.exchange(GatewayReport(gateway="g", epoch=0))).replicas == ()
