"""A replica asks its own engine: the answers come to the question, not to a gateway."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.records import Request, TokenEvent, TokenLogprob
from lora.errors import IdenticalToBase
from serve.errors import GenerationError
from serve.inspector import Inspector

DIGEST = "sha256:" + "d" * 64


class Engine:
    """Answers every request at once; `apart`: how far an adapter's logprobs are from the base's."""

    def __init__(self, apart: float, error: str | None = None) -> None:
        self.apart, self.error = apart, error
        self.inspector: Inspector
        self.added: list[Request] = []
        self.aborted: list[str] = []
        self.passed: list[TokenEvent] = []

    async def add(self, request: Request) -> None:
        self.added.append(request)
        logprob = -0.5 - (self.apart if request.adapter else 0.0)
        told = (TokenLogprob(1, logprob, ((1, logprob),)),)
        last = TokenEvent(request.id, (1,), told, finish="length")
        if self.error is not None:
            last = TokenEvent(request.id, (), finish="error", error=self.error)
        stranger = TokenEvent("somebody's", (7,))
        self.passed += self.inspector.take([stranger, last])

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)


class Folder:
    def probe_prompts(self, digest: str, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        return tuple((1,) * length for length in lengths)

    def dropped(self, digest: str) -> tuple[str, ...]:
        return ("lm_head.base_layer.weight",)

    @contextmanager
    def reading(self, digest: str) -> Iterator[Path]:
        yield Path("folder")


def make(apart: float, error: str | None = None) -> Engine:
    engine = Engine(apart, error)
    engine.inspector = Inspector(engine, Folder(), model=Path("model"), dtype="float32")
    return engine


async def test_an_adapter_that_changes_something_is_told_with_what_was_dropped() -> None:
    engine = make(0.1)
    warnings = await engine.inspector.changes(DIGEST, force=False)
    assert warnings == ("tensor lm_head.base_layer.weight repeats the base's and was dropped",)
    assert [request.adapter for request in engine.added] == [None, DIGEST]
    assert [event.request_id for event in engine.passed] == ["somebody's"] * 2


async def test_an_adapter_that_changes_nothing_is_refused_unless_forced() -> None:
    engine = make(0.0)
    with pytest.raises(IdenticalToBase):
        await engine.inspector.changes(DIGEST, force=False)
    assert len(engine.added) == 6
    assert "loaded by force" in (await engine.inspector.changes(DIGEST, force=True))[0]


async def test_a_probe_that_fails_is_told_and_aborted() -> None:
    engine = make(0.1, error="the runner broke")
    with pytest.raises(GenerationError, match="the runner broke"):
        await engine.inspector.changes(DIGEST, force=False)
    assert engine.aborted == [engine.added[0].id]


async def test_a_question_given_up_is_aborted_and_its_late_event_goes_nowhere() -> None:
    engine = make(0.1)
    take, late = engine.inspector.take, list[TokenEvent]()

    def hold(events: list[TokenEvent]) -> list[TokenEvent]:
        late.extend(events)
        return []

    engine.inspector.take = hold  # type: ignore[method-assign]
    asking = asyncio.create_task(engine.inspector.changes(DIGEST, force=False))
    async with asyncio.timeout(5):
        while not engine.added:  # noqa: ASYNC110  nobody tells when the question is put
            await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert engine.aborted == [engine.added[0].id]
    assert [event.request_id for event in take(late)] == ["somebody's"]
