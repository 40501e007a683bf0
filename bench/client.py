"""A light load client for any server with OpenAI's /v1/completions: streams in a closed loop, in one process.

It shares the machine with the server, so it does little: bytes are stamped as they arrive, and of an event
only text, usage and error are looked at.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.errors import BadLoad
from bench.figures import Outcome
from bench.loads import Load
from bench.sse import DONE, EventReader

TIMEOUT_S = 600.0
OnDone = Callable[[], None]
"""Called after every request."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test. models: names to ask for, in turn; several adapters, for instance."""

    name: str
    url: str
    models: tuple[str, ...]
    api_key: str = ""

    def client(self, streams: int) -> httpx.AsyncClient:
        """HTTP client of this server with room for `streams` at once; the caller closes it."""
        headers = {"accept-encoding": "identity"}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        limits = httpx.Limits(max_connections=streams + 4, max_keepalive_connections=streams + 4)
        return httpx.AsyncClient(
            base_url=with_version(self.url), headers=headers, limits=limits, timeout=TIMEOUT_S
        )


def with_version(url: str) -> str:
    """The base URL with /v1 at its end, which people write or leave out."""
    bare = url.rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"


def parse_target(word: str) -> Target:
    """ "noria=http://127.0.0.1:8000#smollm2-135m" is a name, a base URL and a model. Raises BadLoad."""
    name, equals, rest = word.partition("=")
    url, mark, model = rest.partition("#")
    if not (name and equals and url and mark and model):
        raise BadLoad(f"a server such as NAME=URL#MODEL is expected, got {word!r}")
    return Target(name, url, tuple(model.split(",")))


@dataclass(slots=True)
class _Answer:
    """What is known of a stream so far."""

    arrivals: list[float] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    error: str | None = None

    def take(self, event: dict[str, Any], now: float) -> None:
        choices = event.get("choices")
        if choices and choices[0].get("text"):
            self.arrivals.append(now)
        self.usage = event.get("usage") or self.usage
        if event.get("error"):
            self.error = str(event["error"])

    def check(self, expected: int) -> None:
        """A completion of another length than asked for measures something else: it counts as failed."""
        got = self.usage.get("completion_tokens", expected)
        if self.error is None and not self.arrivals:
            self.error = "the stream had no text"
        elif self.error is None and got != expected:
            self.error = f"{got} tokens came where {expected} were asked for"


def completion_body(model: str, prompt: Sequence[int], output_tokens: int) -> dict[str, Any]:
    """A greedy streaming request for exactly `output_tokens` tokens."""
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def complete(http: httpx.AsyncClient, body: dict[str, Any]) -> Outcome:
    """Send one request and watch its tokens come; a failure is told in the outcome, not raised."""
    answer, sent = _Answer(), time.perf_counter()
    try:
        async with http.stream("POST", "/completions", json=body) as response:
            if response.status_code != 200:
                said = (await response.aread())[:300].decode(errors="replace")
                answer.error = f"HTTP {response.status_code}: {said}"
            else:
                await _watch(response, answer)
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    answer.check(body["max_tokens"])
    return Outcome(
        sent,
        time.perf_counter(),
        tuple(answer.arrivals),
        answer.usage.get("prompt_tokens", 0),
        answer.usage.get("completion_tokens", len(answer.arrivals)),
        answer.error,
    )


async def _watch(response: httpx.Response, answer: _Answer) -> None:
    reader = EventReader()
    async for piece in response.aiter_raw():
        now = time.perf_counter()
        for data in reader.feed(piece):
            if data != DONE:
                answer.take(json.loads(data), now)


async def offer(
    target: Target, load: Load, prompts: Sequence[Sequence[int]], on_done: OnDone
) -> list[Outcome]:
    """Offer the load; outcomes in the order in which requests ended."""
    outcomes: list[Outcome] = []
    waiting = iter(enumerate(prompts))
    async with target.client(load.streams) as http:

        async def stream() -> None:
            for number, prompt in waiting:
                model = target.models[number % len(target.models)]
                outcomes.append(await complete(http, completion_body(model, prompt, load.output_tokens)))
                on_done()

        await asyncio.gather(*(stream() for _ in range(load.streams)))
    return outcomes
