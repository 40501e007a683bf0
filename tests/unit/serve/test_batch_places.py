import asyncio
from collections.abc import Callable

import pytest

from serve.batches.places import Places


class Busy:
    """Whether anybody waits."""

    now = False

    def __call__(self) -> bool:
        return self.now


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr("serve.batches.places.LOOK_S", 0.002)
    monkeypatch.setattr("serve.batches.places.QUIET_S", 0.01)
    return Busy()


class Crowd:
    """Lines that want places; `most` is how many had one at once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.inside: list[int] = []
        self.order: list[int] = []
        self.most = 0
        self.leave = asyncio.Event()

    async def come(self, number: int) -> None:
        async with self._places.one():
            self.inside.append(number)
            self.order.append(number)
            self.most = max(self.most, len(self.inside))
            await self.leave.wait()
            self.inside.remove(number)


async def until(check: Callable[[], bool]) -> None:
    for _ in range(5000):
        if check():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("waited too long")


async def test_all_places_are_there_while_nobody_waits(busy: Busy) -> None:
    crowd = Crowd(Places(4, 1, busy))
    tasks = [asyncio.create_task(crowd.come(number)) for number in range(10)]
    await until(lambda: len(crowd.inside) == 4)
    crowd.leave.set()
    await asyncio.gather(*tasks)
    assert (crowd.most, crowd.order) == (4, list(range(10)))


async def test_beside_those_who_wait_few_begin_until_it_has_been_quiet(busy: Busy) -> None:
    busy.now = True
    crowd = Crowd(Places(4, 2, busy))
    tasks = [asyncio.create_task(crowd.come(number)) for number in range(6)]
    await until(lambda: len(crowd.inside) == 2)
    await asyncio.sleep(0.05)
    assert len(crowd.inside) == 2
    busy.now = False
    await until(lambda: len(crowd.inside) == 4)
    crowd.leave.set()
    await asyncio.gather(*tasks)
    assert crowd.most == 4


async def test_who_gives_up_waiting_leaves_the_way_to_the_next(busy: Busy) -> None:
    crowd = Crowd(Places(1, 1, busy))
    tasks = [asyncio.create_task(crowd.come(number)) for number in range(4)]
    await until(lambda: crowd.inside == [0])
    tasks[1].cancel()
    tasks[0].cancel()
    await until(lambda: 2 in crowd.order)
    crowd.leave.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert crowd.order == [0, 2, 3]
    assert crowd.most <= 2


async def test_never_more_beside_than_alone(busy: Busy) -> None:
    busy.now = True
    crowd = Crowd(Places(1, 8, busy))
    tasks = [asyncio.create_task(crowd.come(number)) for number in range(3)]
    await until(lambda: crowd.inside == [0])
    crowd.leave.set()
    await asyncio.gather(*tasks)
    assert crowd.most == 1
