"""Commands to the engine thread: taken all at once, waited for without turning."""

import asyncio
import threading

from engine.fake_runner import FakeRunner, fake_engine
from engine.inbox import Command, Inbox


async def _command(value: object) -> Command:
    return Command(lambda engine: value, asyncio.get_running_loop().create_future())


async def test_with_work_it_never_waits() -> None:
    inbox = Inbox()
    assert inbox.take(has_work=True) == []
    commands = [await _command(1), await _command(2)]
    for command in commands:
        inbox.put(command)
    assert inbox.take(has_work=True) == commands
    assert inbox.take(has_work=True) == []


async def test_without_work_it_sleeps_until_a_command_comes() -> None:
    inbox, taken = Inbox(), []
    thread = threading.Thread(target=lambda: taken.append(inbox.take(has_work=False)))
    thread.start()
    command = await _command(1)
    inbox.put(command)
    thread.join()
    assert taken == [[command]]


async def test_closed_it_ends_once_nothing_is_left() -> None:
    inbox = Inbox()
    command = await _command(1)
    inbox.put(command)
    inbox.close()
    assert inbox.take(has_work=False) == [command]
    assert inbox.take(has_work=True) == []
    assert inbox.take(has_work=False) is None


async def test_what_a_command_raises_is_its_reply() -> None:
    def fail(engine: object) -> None:
        raise KeyError("x")

    engine = fake_engine(FakeRunner())
    future = asyncio.get_running_loop().create_future()
    assert isinstance(Command(fail, future).apply(engine).error, KeyError)
    assert (await _command(7)).apply(engine).value == 7
