import asyncio
from typing import Any

import pytest

from engine.errors import BadGrammar
from engine.grammar import Grammar
from engine.records import EngineStats, Request, SamplingParams, TokenEvent
from lora.residency import Residency
from serve.errors import LinkProtocolError
from serve.worker import Worker
from tests.unit.lora.fakes import SIZE, FakeEngine, FakeSource

DIGEST = "sha256:" + "d" * 64


class Engine(FakeEngine):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.aborted: list[str | tuple[str, int]] = []
        self.grammars: list[Any] = []
        self.refusal: Exception | None = None
        self.stuck = False

    async def add(self, request: Request, grammar: Any = None) -> None:
        if self.stuck:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request.id)
        self.grammars.append(grammar)

    def abort(self, request_id: str, index: int | None = None) -> None:
        self.aborted.append(request_id if index is None else (request_id, index))

    def kept_grammar(self, grammar: Grammar) -> Any:
        return None

    def prepare_grammar(self, grammar: Grammar) -> Any:
        if grammar.text == "(":
            raise BadGrammar(grammar.param, "it is not closed")
        return f"prepared {grammar.text}"

    def stats(self) -> EngineStats:
        return EngineStats()


class Inspector:
    """Finds that every adapter changes something."""

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]:
        return ("forced",) if force else ()

    async def check(self, digest: str) -> dict[str, Any]:
        return {"passed": True}


class Bench:
    def __init__(self, room: int = 1) -> None:
        self.engine, self.source = Engine(), FakeSource()
        self.residency = Residency(self.engine, self.source, budget=room * SIZE, patience_s=60)
        self.worker = Worker(self.engine, self.residency, Inspector())

    def pins(self) -> dict[str, int]:
        return {item.digest: item.pins for item in self.residency.snapshot() if item.pins}


def request(name: str, adapter: str | None = DIGEST, n: int = 1, grammar: Grammar | None = None) -> Request:
    return Request(name, (1,), SamplingParams(1, n=n, grammar=grammar), adapter)


async def test_the_engine_gets_a_grammar_prepared() -> None:
    bench = Bench()
    await bench.worker.add(request("a", None, grammar=Grammar("regex", "x")), force=False)
    await bench.worker.add(request("b", None), force=False)
    assert bench.engine.grammars == ["prepared x", None]
    await bench.worker.close()


async def test_a_bad_grammar_pins_nothing() -> None:
    bench = Bench()
    with pytest.raises(BadGrammar):
        await bench.worker.add(request("a", grammar=Grammar("regex", "(")), force=False)
    assert bench.pins() == {}
    assert bench.engine.requests == []
    await bench.worker.close()


async def test_an_adapter_is_pinned_until_the_last_event() -> None:
    bench = Bench()
    await bench.worker.add(request("a"), force=True)
    assert bench.source.fits == [(DIGEST, True)]
    assert bench.pins() == {DIGEST: 1}
    bench.worker.sink([TokenEvent("a", (1,))])
    assert bench.pins() == {DIGEST: 1}
    bench.worker.sink([TokenEvent("a", (2,), finish="length")])
    assert bench.pins() == {}
    await bench.residency.close()


async def test_an_adapter_is_pinned_until_the_last_choice_has_ended() -> None:
    bench = Bench()
    await bench.worker.add(request("a", n=3), force=False)
    for index in (2, 0):
        bench.worker.sink([TokenEvent("a", (), finish="abort", index=index)])
        assert bench.pins() == {DIGEST: 1}
    bench.worker.sink([TokenEvent("a", (1,), index=1), TokenEvent("a", (2,), finish="length", index=1)])
    assert bench.pins() == {}
    await bench.residency.close()


async def test_an_abort_of_one_choice_leaves_a_request_that_the_engine_is_taking() -> None:
    bench = Bench()
    bench.engine.stuck = True
    adding = asyncio.create_task(bench.worker.add(request("a", n=2), force=False))
    await asyncio.sleep(0.05)
    bench.worker.abort("a", 1)
    await asyncio.sleep(0.05)
    assert (bench.engine.aborted, adding.done()) == ([("a", 1)], False)
    bench.worker.abort("a", None)
    with pytest.raises(LinkProtocolError):
        await adding
    await bench.residency.close()


async def test_a_refused_request_leaves_no_pin() -> None:
    bench = Bench()
    bench.engine.refusal = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await bench.worker.add(request("a"), force=False)
    assert bench.pins() == {}
    await bench.residency.close()


async def test_an_abort_reaches_a_request_that_waits_for_memory() -> None:
    bench = Bench()
    await bench.worker.add(request("running"), force=False)
    waiting = asyncio.create_task(bench.worker.add(request("waiting", "sha256:" + "e" * 64), force=False))
    await asyncio.sleep(0.05)
    bench.worker.abort("waiting", None)
    with pytest.raises(LinkProtocolError, match="aborted"):
        await waiting
    assert bench.pins() == {DIGEST: 1}
    assert bench.engine.requests == ["running"]
    await bench.residency.close()


async def test_an_abort_reaches_a_request_that_the_engine_is_taking() -> None:
    bench = Bench()
    bench.engine.stuck = True
    adding = asyncio.create_task(bench.worker.add(request("a"), force=False))
    await asyncio.sleep(0.05)
    bench.worker.abort("a", None)
    with pytest.raises(LinkProtocolError):
        await adding
    assert bench.engine.aborted == ["a"]
    assert bench.pins() == {}
    await bench.residency.close()


async def test_an_abort_of_a_running_or_unknown_request_goes_to_the_engine() -> None:
    bench = Bench()
    await bench.worker.add(request("a", None), force=False)
    bench.worker.abort("a", None)
    bench.worker.abort("nobody", None)
    bench.worker.abort("a", 2)
    assert bench.engine.aborted == ["a", "nobody", ("a", 2)]
    await bench.residency.close()


async def test_a_load_waits_until_ready_and_an_unload_for_nobody() -> None:
    bench = Bench()
    loaded = await bench.worker.call("load", [DIGEST, False])
    assert loaded["warnings"] == []
    assert (loaded["state"], loaded["bytes"]) == ("ready", SIZE)
    await bench.worker.add(request("a"), force=False)
    going = await asyncio.wait_for(bench.worker.call("unload", [DIGEST]), 1)
    assert going == {"bytes": SIZE, "requests": 1}
    assert bench.worker.adapters()[DIGEST]["state"] == "draining"
    bench.worker.sink([TokenEvent("a", (), finish="abort")])
    async with asyncio.timeout(5):
        while DIGEST in bench.worker.adapters():  # noqa: ASYNC110  the residency tells nobody
            await asyncio.sleep(0.01)
    assert bench.engine.bytes == 0
    await bench.worker.close()
    await bench.residency.close()


async def test_the_answer_to_an_unload_of_what_nobody_uses_tells_what_is_freed() -> None:
    bench = Bench()
    await bench.worker.call("load", [DIGEST, False])
    assert await bench.worker.call("unload", [DIGEST]) == {"bytes": SIZE, "requests": 0}
    assert await bench.worker.call("unload", [DIGEST]) == {"bytes": 0, "requests": 0}
    await bench.residency.close()


async def test_what_is_told_ahead_or_kept_is_listed_and_what_lies_on_disk_too() -> None:
    bench = Bench(room=2)
    assert await bench.worker.call("keep", [1, {DIGEST: True}]) == {}
    assert bench.source.fits == [(DIGEST, True)]
    await bench.worker.call("prefetch", ["sha256:b", False])
    async with asyncio.timeout(5):
        while "sha256:b" not in bench.engine.added:  # noqa: ASYNC110  a prefetch answers at once
            await asyncio.sleep(0.01)
    await bench.worker.call("load", ["sha256:c", False])
    listed = await bench.worker.call("adapters", [])
    states = {digest: (row["state"], row["pinned"]) for digest, row in listed.items()}
    assert states == {DIGEST: ("ready", True), "sha256:c": ("ready", False), "sha256:b": ("disk", False)}
    assert set(bench.worker.adapters()) == {DIGEST, "sha256:c"}
    assert (await bench.worker.call("keep", [2, {}]), bench.worker.adapters()[DIGEST]["pinned"]) == (
        {},
        False,
    )
    await bench.residency.close()


@pytest.mark.parametrize(
    ("method", "args"), [("drop", []), ("load", []), ("load", [1, False]), ("unload", [])]
)
async def test_other_calls_are_refused(method: str, args: list[Any]) -> None:
    bench = Bench()
    with pytest.raises(LinkProtocolError):
        await bench.worker.call(method, args)
    await bench.residency.close()


async def test_a_check_keeps_the_adapter_in_memory_meanwhile() -> None:
    bench = Bench()
    assert await bench.worker.call("check", [DIGEST, False]) == {"passed": True}
    assert bench.pins() == {}
    await bench.worker.close()
    await bench.residency.close()
