"""Traffic through the openai client: many readers at once, every answer streamed.

It sees a base URL and nothing behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam

from noria.demo.users import Ask

Tick = Callable[["Answer"], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished stream. `adapter` is an adapter id or "base"; times in seconds from the call.

    `fingerprints` are the distinct versions that the chunks named, in order of first sight.
    """

    ask: Ask
    request_id: str
    adapter: str
    variant: str
    fingerprints: tuple[str, ...]
    text: str
    finish_reason: str
    tokens: int
    first_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Asking:
    """How a prompt is put to the endpoint. `extra` goes into the body as it is."""

    model: str
    max_tokens: int
    temperature: float = 0.7
    top_p: float = 0.95
    extra: Mapping[str, Any] | None = None
    source: str = "traffic"


def connect(url: str) -> openai.AsyncOpenAI:
    """A client that never retries by itself, so that a failed request is seen."""
    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=300.0)


async def ask_once(
    client: openai.AsyncOpenAI, asking: Asking, ask: Ask, on_token: Callable[[], None]
) -> Answer:
    """Ask, and read the stream to its end. Raises openai.OpenAIError; `on_token` is called for each piece."""
    started = time.monotonic()
    message: ChatCompletionUserMessageParam = {"role": "user", "content": ask.prompt.text}
    raw = await client.chat.completions.with_raw_response.create(
        model=asking.model,
        messages=[message],
        max_tokens=asking.max_tokens,
        temperature=asking.temperature,
        top_p=asking.top_p,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=_headers(asking, ask),
        extra_body=dict(asking.extra or {}),
    )
    reading = _Reading()
    async with raw.parse() as stream:
        async for chunk in stream:
            reading.take(chunk, time.monotonic() - started)
            on_token()
    return Answer(
        ask=ask,
        request_id=raw.headers["x-noria-request-id"],
        adapter=raw.headers["x-noria-adapter"],
        variant=raw.headers["x-noria-variant"],
        fingerprints=tuple(reading.fingerprints),
        text="".join(reading.pieces),
        finish_reason=reading.finish_reason,
        tokens=reading.tokens,
        first_s=reading.first_s,
        total_s=time.monotonic() - started,
    )


async def ask_all(
    client: openai.AsyncOpenAI, asking: Asking, asks: Sequence[Ask], concurrency: int, tick: Tick
) -> list[Answer]:
    """Ask everything with at most `concurrency` streams open; answers come in the order of `asks`."""
    gate = asyncio.Semaphore(concurrency)

    async def one(ask: Ask) -> Answer:
        async with gate:
            answer = await ask_once(client, asking, ask, lambda: None)
        tick(answer)
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(ask)) for ask in asks]
    return [task.result() for task in tasks]


def _headers(asking: Asking, ask: Ask) -> dict[str, str]:
    headers = {"x-noria-user": ask.reader.name, "x-noria-source": asking.source}
    if ask.parent:
        headers["x-noria-parent"] = ask.parent
    return headers


class _Reading:
    """What has been read of one stream so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.fingerprints: list[str] = []
        self.finish_reason = "interrupted"
        self.tokens = 0
        self.first_s = 0.0

    def take(self, chunk: ChatCompletionChunk, now_s: float) -> None:
        fingerprint = chunk.system_fingerprint
        if fingerprint and fingerprint not in self.fingerprints:
            self.fingerprints.append(fingerprint)
        if chunk.usage:
            self.tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.delta.content:
                self.first_s = self.first_s or now_s
                self.pieces.append(choice.delta.content)
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
