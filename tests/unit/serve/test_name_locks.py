import asyncio

from serve.name_locks import NameLocks


async def test_one_name_is_held_by_one_at_a_time_in_the_order_of_asking() -> None:
    locks, order, inside = NameLocks(), [], []

    async def work(number: int) -> None:
        async with locks.hold("a"):
            inside.append(number)
            await asyncio.sleep(0)
            assert inside == [number]
            inside.clear()
            order.append(number)

    await asyncio.gather(*map(work, range(8)))
    assert order == list(range(8))
    assert len(locks) == 0


async def test_other_names_do_not_wait_and_names_take_no_memory() -> None:
    locks = NameLocks()
    async with locks.hold("a"):
        for number in range(100):
            async with asyncio.timeout(5), locks.hold(f"b{number}"):
                assert len(locks) == 2
    assert len(locks) == 0


async def test_one_that_gives_up_waiting_leaves_nothing() -> None:
    locks = NameLocks()

    async def wait() -> None:
        async with locks.hold("a"):
            raise AssertionError("it is held")

    async with locks.hold("a"):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(locks) == 1
    assert len(locks) == 0
