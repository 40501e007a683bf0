"""The engine on its thread: events in batches on the loop, commands between steps, an orderly end."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import (
    AdapterInUse,
    DuplicateRequest,
    EngineClosed,
    IntegrityError,
    PromptTooLong,
    UnknownAdapter,
)
from engine.fake_runner import FakeRunner, FakeWeights, expected, fake_engine
from engine.records import Request, SamplingParams, StepPlan, TokenEvent
from engine.step_thread import UNHEALTHY_AFTER


class Collector:
    """A sink that keeps events by request and lets tests wait for an end."""

    def __init__(self) -> None:
        self.events: dict[str, list[TokenEvent]] = {}
        self.threads: set[int] = set()
        self._changed = asyncio.Event()

    def __call__(self, events: list[TokenEvent]) -> None:
        self.threads.add(threading.get_ident())
        for event in events:
            self.events.setdefault(event.request_id, []).append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def last(self, request_id: str) -> TokenEvent:
        await self.until(lambda: any(event.finish for event in self.events.get(request_id, ())))
        return self.events[request_id][-1]

    def tokens(self, request_id: str) -> list[int]:
        return [token_id for event in self.events[request_id] for token_id in event.token_ids]


class Gate:
    """Holds the engine's thread inside a step until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, plan: StepPlan) -> None:
        self.entered.set()
        self.opened.wait(timeout=10)  # a test that fails with the gate shut must not hang

    async def wait_entered(self) -> None:
        await asyncio.to_thread(self.entered.wait)


@asynccontextmanager
async def running(runner: FakeRunner, **settings: Any) -> AsyncIterator[tuple[AsyncEngine, Collector]]:
    sink = Collector()
    sizes: dict[str, Any] = {"max_num_seqs": 4, "max_batched_tokens": 64}
    engine = AsyncEngine(_config(), sink, make_engine=lambda _: fake_engine(runner, **(sizes | settings)))
    await engine.start()
    try:
        yield engine, sink
    finally:
        await engine.close()


def _config() -> EngineConfig:
    return EngineConfig(model=Path("fake"))


def _request(
    id: str, prompt: range = range(20), max_tokens: int = 8, adapter: str | None = None, choices: int = 1
) -> Request:
    return Request(id, tuple(prompt), SamplingParams(max_tokens, seed=1, ignore_eos=True, n=choices), adapter)


def _alone(prompt: range = range(20), max_tokens: int = 8, adapter: str | None = None) -> list[int]:
    return expected(prompt, max_tokens, seed=1, adapter=adapter, stop_ids=frozenset())


async def test_concurrent_requests_complete_as_if_alone_and_events_come_on_the_loop() -> None:
    async with running(FakeRunner()) as (engine, sink):
        await asyncio.gather(*(engine.add(_request(str(i), range(i, i + 30))) for i in range(9)))
        for index in range(9):
            assert (await sink.last(str(index))).finish == "length"
            assert sink.tokens(str(index)) == _alone(range(index, index + 30))
    assert sink.threads == {threading.get_ident()}


async def test_refusals_are_raised_where_add_is_awaited() -> None:
    gate = Gate()
    async with running(FakeRunner(before_run=gate)) as (engine, sink):
        await engine.add(_request("r", max_tokens=50))
        await gate.wait_entered()
        adding = asyncio.ensure_future(engine.add(_request("r")))
        too_long = asyncio.ensure_future(engine.add(Request("s", (1,) * 5000, SamplingParams(1))))
        await asyncio.sleep(0)
        gate.opened.set()
        with pytest.raises(DuplicateRequest):
            await adding
        with pytest.raises(PromptTooLong):
            await too_long
        await sink.last("r")
        with pytest.raises(UnknownAdapter):
            await engine.add(_request("t", adapter="sha256:a"))
    assert set(sink.events) == {"r"}


async def test_commands_sent_during_a_step_are_applied_before_the_next() -> None:
    gate = Gate()
    runner = FakeRunner(before_run=gate)
    async with running(runner) as (engine, sink):
        await engine.add(_request("stays", max_tokens=3))
        await gate.wait_entered()
        adding = [asyncio.ensure_future(engine.add(_request(str(i)))) for i in range(3)]
        await asyncio.sleep(0)
        engine.abort("stays")
        gate.opened.set()
        await asyncio.gather(*adding)
        assert (await sink.last("stays")).finish == "abort"
        assert len(sink.tokens("stays")) == 1
        assert len(runner.plans[1]) == 3


async def test_a_fork_goes_on_from_what_its_parent_has_computed() -> None:
    gate = Gate()
    async with running(FakeRunner(before_run=gate), prefix_cache=False) as (engine, sink):
        await engine.add(_request("r", max_tokens=50))
        await gate.wait_entered()
        forking = asyncio.ensure_future(engine.fork("r", _request("s")))
        await asyncio.sleep(0)
        gate.opened.set()
        await forking
        stats = (await sink.last("s")).stats
        assert stats is not None
        assert stats.cached_tokens == 19
        assert sink.tokens("s") == _alone()


async def test_events_tell_which_choice_they_are_of() -> None:
    async with running(FakeRunner()) as (engine, sink):
        await engine.add(_request("r", max_tokens=5, choices=3))
        await sink.until(lambda: sum(event.finish is not None for event in sink.events.get("r", ())) == 3)
        assert Counter(event.index for event in sink.events["r"]) == {0: 5, 1: 5, 2: 5}


async def test_abort_frees_in_any_phase_and_of_nobody_is_nothing() -> None:
    gate = Gate()
    async with running(FakeRunner(before_run=gate), max_num_seqs=1) as (engine, sink):
        await engine.add(_request("running", max_tokens=50))
        await gate.wait_entered()
        queued = asyncio.ensure_future(engine.add(_request("queued")))
        await asyncio.sleep(0)
        for request_id in ("queued", "running", "nobody"):
            engine.abort(request_id)
        gate.opened.set()
        await queued
        assert {(await sink.last(r)).finish for r in ("running", "queued")} == {"abort"}
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.blocks_free) == (0, 0, stats.blocks_total)
        assert "nobody" not in sink.events


async def test_a_cancelled_add_leaves_no_request_behind() -> None:
    gate = Gate()
    async with running(FakeRunner(before_run=gate)) as (engine, sink):
        await engine.add(_request("first", max_tokens=1))
        await gate.wait_entered()
        adding = asyncio.ensure_future(engine.add(_request("left", max_tokens=500)))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        gate.opened.set()
        assert (await sink.last("left")).finish == "abort"


async def test_adapters_come_and_go_between_steps() -> None:
    async with running(FakeRunner()) as (engine, sink):
        weights: Any = FakeWeights("sha256:a")  # a stand-in
        await engine.add_adapter(await asyncio.to_thread(engine.prepare_adapter, weights))
        assert engine.adapters()["sha256:a"].slot is None
        await engine.add(_request("r", adapter="sha256:a", max_tokens=400))
        with pytest.raises(AdapterInUse):
            await engine.remove_adapter("sha256:a")
        engine.abort("r")
        await sink.last("r")
        assert await engine.remove_adapter("sha256:a") == len("sha256:a")
        assert engine.adapters() == {}


async def test_failing_steps_end_their_requests_and_health_shows_when_they_repeat() -> None:
    failing = True

    def fail(plan: StepPlan) -> None:
        if failing:
            raise RuntimeError("device lost")

    async with running(FakeRunner(before_run=fail)) as (engine, sink):
        for index in range(UNHEALTHY_AFTER):
            assert engine.healthy
            await engine.add(_request(str(index)))
            assert (await sink.last(str(index))).error == "RuntimeError: device lost"
        assert not engine.healthy
        failing = False
        await engine.add(_request("after"))
        assert (await sink.last("after")).finish == "length"
        assert engine.healthy


async def test_the_loop_survives_damage_to_the_engines_own_state() -> None:
    made: list[Engine] = []

    def damage(plan: StepPlan) -> None:
        runner.before_run = None
        made[0]._scheduler.pool.allocate(1)

    def make(config: EngineConfig) -> Engine:
        made.append(fake_engine(runner))
        return made[0]

    runner, sink = FakeRunner(before_run=damage), Collector()
    engine = AsyncEngine(_config(), sink, make_engine=make)
    await engine.start()
    await engine.add(_request("r"))
    last = await sink.last("r")
    assert last.finish == "error"
    assert str(last.error).startswith("IntegrityError: block")
    await engine.add(_request("after"))
    assert (await sink.last("after")).finish == "length"
    await engine.close()


async def test_a_leak_is_found_when_idle_and_mended() -> None:
    made: list[Engine] = []

    def make(config: EngineConfig) -> Engine:
        made.append(fake_engine(FakeRunner(), check_integrity=False))
        return made[0]

    sink = Collector()
    engine = AsyncEngine(_config(), sink, make_engine=make)
    await engine.start()
    made[0]._scheduler.pool.allocate(1)
    await engine.add(_request("r"))
    assert (await sink.last("r")).finish == "length"
    await engine.close()
    assert made[0].stats().failed_steps == 1
    assert made[0].stats().blocks_free == made[0].stats().blocks_total


async def test_an_idle_engine_sleeps() -> None:
    made: list[Engine] = []

    class Counting(Engine):
        asked = 0

        @property
        def has_work(self) -> bool:
            self.asked += 1
            return super().has_work

    def make(config: EngineConfig) -> Engine:
        made.append(Counting(config, runner=FakeRunner()))
        return made[0]

    sink = Collector()
    engine = AsyncEngine(_config(), sink, make_engine=make)
    await engine.start()
    await engine.add(_request("r"))
    await sink.last("r")
    await asyncio.sleep(0.05)
    asked = made[0].asked  # type: ignore[attr-defined]  # of Counting
    await asyncio.sleep(0.05)
    assert made[0].asked == asked  # type: ignore[attr-defined]  # of Counting
    await engine.close()


async def test_close_finishes_what_was_taken_in_and_takes_no_more() -> None:
    gate = Gate()
    async with running(FakeRunner(before_run=gate)) as (engine, sink):
        await engine.add(_request("r", max_tokens=40))
        await gate.wait_entered()
        closing = asyncio.ensure_future(engine.close())
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed):
            await engine.add(_request("late"))
        gate.opened.set()
        await closing
        assert sink.tokens("r") == _alone(max_tokens=40)
        assert not engine.healthy
        await engine.close()


async def test_close_aborts_what_does_not_finish_in_time() -> None:
    gate = Gate()
    async with running(FakeRunner(before_run=gate)) as (engine, sink):
        await engine.add(_request("r", max_tokens=400))
        await gate.wait_entered()
        asyncio.get_running_loop().call_later(0.05, gate.opened.set)
        await engine.close(timeout_s=0)
        assert sink.events["r"][-1].finish == "abort"


async def test_an_engine_that_is_not_started_takes_nothing_and_closes() -> None:
    engine = AsyncEngine(_config(), Collector())
    with pytest.raises(EngineClosed):
        await engine.add(_request("r"))
    assert not engine.healthy
    assert (engine.stats().running, engine.adapters(), engine.max_model_len) == (0, {}, 0)
    await engine.close()


async def test_a_build_that_fails_is_raised_by_start() -> None:
    def make(config: EngineConfig) -> Engine:
        raise IntegrityError("cannot be built")

    engine = AsyncEngine(_config(), Collector(), make_engine=make)
    with pytest.raises(IntegrityError, match="cannot be built"):
        await engine.start()
    with pytest.raises(EngineClosed):
        await engine.add_adapter(FakeWeights("sha256:a"))
    with pytest.raises(EngineClosed):
        engine.prepare_adapter(FakeWeights("sha256:a"))  # type: ignore[arg-type]  # a stand-in
    await engine.close()


async def test_the_model_length_is_known_once_started() -> None:
    async with running(FakeRunner(num_blocks=10)) as (engine, _):
        assert engine.max_model_len == 160
