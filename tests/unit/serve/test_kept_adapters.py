import asyncio
from dataclasses import dataclass, field

from lora.errors import NotInStore
from serve.kept_adapters import KeptAdapters


@dataclass(eq=False)
class Pin:
    digest: str


@dataclass
class Residency:
    held: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    async def acquire(self, digest: str, *, force: bool) -> Pin:
        await asyncio.sleep(0)
        if digest in self.missing:
            raise NotInStore(digest)
        self.held.append(digest)
        return Pin(digest)

    def release(self, pin: Pin) -> None:
        self.held.remove(pin.digest)


def bench() -> tuple[Residency, KeptAdapters]:
    residency = Residency()
    return residency, KeptAdapters(residency)  # type: ignore[arg-type]  # a stand-in


async def test_exactly_what_is_named_is_held() -> None:
    residency, kept = bench()
    assert await kept.keep(1, {"a": False, "b": True}) == {}
    assert sorted(residency.held) == ["a", "b"]
    assert await kept.keep(2, {"b": True, "c": False}) == {}
    assert sorted(residency.held) == ["b", "c"]
    assert "a" not in kept
    await kept.keep(3, {})
    assert residency.held == []


async def test_an_older_registry_changes_nothing() -> None:
    residency, kept = bench()
    await kept.keep(5, {"a": False})
    await kept.keep(4, {})
    assert residency.held == ["a"]


async def test_two_gateways_at_once_hold_it_once() -> None:
    residency, kept = bench()
    await asyncio.gather(*(kept.keep(1, {"a": False}) for _ in range(3)))
    assert residency.held == ["a"]


async def test_what_is_named_no_more_while_it_loads_is_not_held() -> None:
    residency, kept = bench()
    loading = asyncio.create_task(kept.keep(1, {"a": False}))
    await asyncio.sleep(0)
    await kept.keep(2, {})
    await loading
    assert residency.held == []


async def test_what_cannot_be_loaded_is_told_and_tried_again() -> None:
    residency, kept = bench()
    residency.missing = {"a"}
    failures = await kept.keep(1, {"a": False, "b": False})
    assert list(failures) == ["a"]
    assert residency.held == ["b"]
    residency.missing = set()
    assert await kept.keep(1, {"a": False, "b": False}) == {}
    assert sorted(residency.held) == ["a", "b"]
