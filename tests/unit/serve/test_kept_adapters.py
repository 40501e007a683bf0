import asyncio

from lora.residency import Residency
from serve.kept_adapters import KeptAdapters
from tests.unit.lora.fakes import SIZE, FakeEngine, FakeSource


class Bench:
    def __init__(self) -> None:
        self.source = FakeSource()
        self.residency = Residency(FakeEngine(), self.source, budget=4 * SIZE)
        self.kept = KeptAdapters(self.residency)

    @property
    def held(self) -> list[str]:
        return sorted(row.digest for row in self.residency.snapshot() if row.pinned)


async def test_exactly_what_is_named_is_pinned() -> None:
    bench = Bench()
    assert await bench.kept.keep(1, {"a": False, "b": True}) == {}
    assert bench.held == ["a", "b"]
    assert sorted(bench.source.fits) == [("a", False), ("b", True)]
    assert await bench.kept.keep(2, {"b": True, "c": False}) == {}
    assert bench.held == ["b", "c"]
    await bench.kept.keep(3, {})
    assert bench.held == []


async def test_an_older_registry_changes_nothing() -> None:
    bench = Bench()
    await bench.kept.keep(5, {"a": False})
    await bench.kept.keep(4, {})
    assert bench.held == ["a"]


async def test_two_gateways_at_once_load_it_once() -> None:
    bench = Bench()
    await asyncio.gather(*(bench.kept.keep(1, {"a": False}) for _ in range(3)))
    assert (bench.held, bench.source.fits) == (["a"], [("a", False)])


async def test_what_is_named_no_more_while_it_loads_is_not_pinned() -> None:
    bench = Bench()
    loading = asyncio.create_task(bench.kept.keep(1, {"a": False}))
    await asyncio.sleep(0)
    await bench.kept.keep(2, {})
    assert await loading == {}
    assert bench.held == []


async def test_what_was_unloaded_and_is_still_named_is_pinned_again() -> None:
    bench = Bench()
    await bench.kept.keep(1, {"a": False})
    await bench.residency.unload("a")
    assert bench.held == []
    await bench.kept.keep(1, {"a": False})
    assert bench.held == ["a"]


async def test_what_cannot_be_loaded_or_pinned_is_told_and_tried_again() -> None:
    bench = Bench()
    bench.source.absent = {"a"}
    failures = await bench.kept.keep(1, dict.fromkeys("abcde", False))
    assert (len(failures), len(bench.held)) == (2, 3)
    assert "not in the store" in failures["a"]
    assert any("is not pinned" in why for why in failures.values())
    bench.source.absent = set()
    assert await bench.kept.keep(1, {"a": False, "b": False}) == {}
    assert bench.held == ["a", "b"]
