"""The load client against a small server on a local socket, which answers as an OpenAI server streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench.client import Target, offer
from bench.figures import Outcome
from bench.loads import Load, make_prompts
from bench.sse import EventReader

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
Answer = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server whose requests go to `answer`; yields its URL and the bodies it has met."""
    bodies: list[dict[str, Any]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        bodies.append(json.loads(await reader.readexactly(length)))
        await answer(bodies[-1], writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", bodies


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def stream(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """As many tokens as asked for, the last event cut in two."""
    writer.write(HEAD)
    for _ in range(body["max_tokens"]):
        writer.write(event({"choices": [{"text": "x"}]}))
        await writer.drain()
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
    last = event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    writer.write(last[:20])
    await writer.drain()
    writer.write(last[20:])


async def run(answer: Answer, load: Load, models: tuple[str, ...]) -> tuple[list[Outcome], Any, int]:
    done = []
    async with served(answer) as (url, bodies):
        target = Target("test", url, models)
        outcomes = await offer(target, load, make_prompts(load, seed=1), lambda: done.append(1))
    return outcomes, bodies, len(done)


async def test_every_request_is_measured_and_models_are_asked_in_turn() -> None:
    load = Load(streams=2, requests=5, prompt_tokens=7, output_tokens=3)
    outcomes, bodies, done = await run(stream, load, ("one", "two"))
    assert done == len(outcomes) == 5
    assert all(outcome.error is None for outcome in outcomes)
    assert {(outcome.prompt_tokens, outcome.output_tokens) for outcome in outcomes} == {(7, 3)}
    assert all(outcome.sent <= outcome.arrivals[0] <= outcome.ended for outcome in outcomes)
    assert sorted(body["model"] for body in bodies) == ["one"] * 3 + ["two"] * 2
    assert all(body["min_tokens"] == body["max_tokens"] == 3 for body in bodies)


async def test_a_refusal_is_told_with_its_status_and_words() -> None:
    async def refuse(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        said = b'{"error": {"message": "no such model"}}'
        head = f"HTTP/1.1 404 Not Found\r\ncontent-length: {len(said)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + said)

    outcomes, _, _ = await run(refuse, Load(streams=1, requests=1, prompt_tokens=2), ("none",))
    assert outcomes[0].error is not None
    assert "404" in outcomes[0].error
    assert "no such model" in outcomes[0].error


async def test_an_error_within_a_stream_fails_the_request() -> None:
    async def break_off(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event({"choices": [{"text": "x"}]}) + event({"error": {"message": "lost"}}))

    outcomes, _, _ = await run(break_off, Load(streams=1, requests=1, prompt_tokens=2), ("m",))
    assert "lost" in str(outcomes[0].error)


async def test_a_stream_without_text_is_a_failure() -> None:
    async def silent(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"data: [DONE]\n\n")

    outcomes, _, _ = await run(silent, Load(streams=1, requests=1, prompt_tokens=2), ("m",))
    assert outcomes[0].error == "the stream had no text"


async def test_a_completion_of_another_length_is_a_failure() -> None:
    async def three(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        await stream({**body, "max_tokens": 3}, writer)

    outcomes, _, _ = await run(three, Load(streams=1, requests=1, prompt_tokens=2, output_tokens=5), ("m",))
    assert outcomes[0].error == "3 tokens came where 5 were asked for"


def test_events_come_out_whole_however_the_bytes_are_cut() -> None:
    raw = b': comment\r\n\r\ndata: {"a": "\xc3\xa9"}\r\n\r\nevent: x\ndata:two\n\ndata: [DONE]\n\n'
    whole = [b'{"a": "\xc3\xa9"}', b"two", b"[DONE]"]
    for size in range(1, len(raw) + 1):
        reader = EventReader()
        found = []
        for start in range(0, len(raw), size):
            found += reader.feed(raw[start : start + size])
        assert found == whole
