"""Stage 2: readers ask their questions, and every answer streams back and leaves its record."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from noria.demo.bars import answers_bar
from noria.demo.landing import requests_landed
from noria.demo.ledger import StageRecord, pairs
from noria.demo.prompts import traffic_prompts
from noria.demo.sizes import CONCURRENCY, ENDPOINT, MAX_TOKENS, REPLAY_PROMPTS, REPLAY_READERS, SEED
from noria.demo.stages.bring_up import Platform
from noria.demo.traffic import Answer, Asking, ask_all, connect
from noria.demo.users import Ask, assign, cast

ENDINGS = {"stop", "length"}


def replay(platform: Platform, stage: StageRecord, console: Console) -> list[Answer]:
    """Ask REPLAY_PROMPTS prompts as REPLAY_READERS readers and check that nothing was lost or mislabelled."""
    asks = assign(cast(REPLAY_READERS, SEED, "reader"), traffic_prompts()[:REPLAY_PROMPTS], SEED)
    started = time.monotonic()
    answers = stream_all(platform, asks, console, "answers")
    seconds = time.monotonic() - started
    landed = requests_landed(platform.db, answers)
    endings = Counter(answer.finish_reason for answer in answers)
    tokens = sum(answer.tokens for answer in answers)
    figures = {
        "requests": len(answers),
        "readers": REPLAY_READERS,
        "recorded": landed,
        "tokens": tokens,
        "tokens_per_s": round(tokens / seconds, 1),
        "first_token_median_s": round(statistics.median(answer.first_s for answer in answers), 3),
        "endings": dict(endings),
    }
    stage.figures |= figures
    console.print(pairs("traffic", figures))
    stage.require(
        set(endings) <= ENDINGS, f"answers ended as {dict(endings)}, expected only {sorted(ENDINGS)}"
    )
    stage.require({answer.adapter for answer in answers} == {"base"}, "some answers are not the base model's")
    stage.require(landed == len(answers), f"{landed} of {len(answers)} requests are on record")
    stage.headline = (
        f"{len(answers)} answers streamed to {REPLAY_READERS} readers, {figures['tokens_per_s']} tok/s"
    )
    return answers


def stream_all(platform: Platform, asks: Sequence[Ask], console: Console, title: str) -> list[Answer]:
    """Stream every ask from the endpoint, CONCURRENCY at a time, under a progress bar."""

    async def stream() -> list[Answer]:
        with answers_bar(console, title, len(asks)) as tick:
            async with connect(platform.url) as client:
                return await ask_all(client, Asking(ENDPOINT, MAX_TOKENS), asks, CONCURRENCY, tick)

    return asyncio.run(stream())
