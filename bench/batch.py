"""What a batch does to those who wait for an answer: interactive streams alone, and beside a batch.

    noria up --port 8000 &
    python -m bench.batch http://127.0.0.1:8000#smollm2-135m --streams 4 --rounds 3

The two take turns; a batch is created before the streams begin, has more lines than they leave time for, and
is cancelled when they have ended. Beside it what a batch does while nobody else asks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import httpx

from bench.client import Target, offer, parse_target
from bench.errors import NoFigures
from bench.figures import Figures, summarise
from bench.loads import Load, make_prompts

LINES = 2_000
SETTLE_S = 3.0
ENDED = {"completed", "failed", "expired", "cancelled"}


@dataclass(frozen=True, slots=True)
class Round:
    """One turn: the streams alone, the streams beside a batch, and tokens a second of that batch."""

    alone: Figures
    beside: Figures
    batch_tok_s: float


async def begin(http: httpx.AsyncClient, model: str, load: Load) -> str:
    """Create a batch of prompts of its own, of the sizes of the load; its id. Raises NoFigures."""
    sizes = Load(
        streams=1, requests=LINES, prompt_tokens=load.prompt_tokens, output_tokens=load.output_tokens
    )
    lines = [
        json.dumps(
            {
                "custom_id": str(number),
                "method": "POST",
                "url": "/v1/completions",
                "body": {
                    "model": model,
                    "prompt": list(prompt),
                    "max_tokens": load.output_tokens,
                    "ignore_eos": True,
                    "temperature": 0.0,
                },
            }
        )
        for number, prompt in enumerate(make_prompts(sizes, seed=time.time_ns()))
    ]
    file = await http.post(
        "/files", files={"file": ("batch.jsonl", "\n".join(lines).encode())}, data={"purpose": "batch"}
    )
    _check(file)
    body = {"input_file_id": file.json()["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    made = await http.post("/batches", json=body)
    _check(made)
    return str(made.json()["id"])


async def tokens_of(http: httpx.AsyncClient, batch_id: str) -> int:
    """Tokens that a batch has made so far."""
    answer = await http.get(f"/batches/{batch_id}")
    _check(answer)
    return int(answer.json()["usage"]["output_tokens"])


async def end(http: httpx.AsyncClient, batch_id: str) -> None:
    """Cancel a batch and wait until it has ended."""
    await http.post(f"/batches/{batch_id}/cancel")
    for _ in range(600):
        if (await http.get(f"/batches/{batch_id}")).json()["status"] in ENDED:
            return
        await asyncio.sleep(0.1)
    raise NoFigures(f"batch {batch_id} was cancelled a minute ago and has not ended")


async def one_round(target: Target, load: Load) -> Round:
    """Raises NoFigures."""
    alone = summarise(await offer(target, load, make_prompts(load, seed=time.time_ns()), lambda: None))
    async with target.client(2) as http:
        batch_id = await begin(http, target.models[0], load)
        await asyncio.sleep(SETTLE_S)
        before, began = await tokens_of(http, batch_id), time.perf_counter()
        prompts = make_prompts(load, seed=time.time_ns())
        beside = summarise(await offer(target, load, prompts, lambda: None))
        made, took = await tokens_of(http, batch_id) - before, time.perf_counter() - began
        await end(http, batch_id)
    return Round(alone, beside, made / took)


async def unaccompanied(target: Target, load: Load, seconds: float) -> float:
    """Tokens a second of a batch while nobody else asks."""
    async with target.client(2) as http:
        batch_id = await begin(http, target.models[0], load)
        await asyncio.sleep(SETTLE_S)
        before, began = await tokens_of(http, batch_id), time.perf_counter()
        await asyncio.sleep(seconds)
        made, took = await tokens_of(http, batch_id) - before, time.perf_counter() - began
        await end(http, batch_id)
    return made / took


def show(rounds: Sequence[Round], alone_tok_s: float) -> None:
    """Medians, as a table."""
    print("| streams | TTFT p50 | TTFT p95 | TPOT p50 | tok/s | batch tok/s |")
    print("|---|---|---|---|---|---|")
    kinds = [("alone", [each.alone for each in rounds], 0.0)]
    kinds.append(("beside a batch", [each.beside for each in rounds], median(r.batch_tok_s for r in rounds)))
    for name, found, batch in kinds:
        ttft, late = median(f.ttft_p50_ms for f in found), median(f.ttft_p95_ms for f in found)
        step, rate = median(f.tpot_p50_ms for f in found), median(f.output_tok_s for f in found)
        print(f"| {name} | {ttft:.0f} ms | {late:.0f} ms | {step:.1f} ms | {rate:.0f} | {batch:.0f} |")
    print(f"| none | | | | | {alone_tok_s:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="URL#MODEL")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    target = parse_target(f"server={args.server}")
    load = Load(
        streams=args.streams,
        requests=args.requests,
        prompt_tokens=args.prompt,
        output_tokens=args.output,
    )

    async def measure() -> tuple[list[Round], float]:
        rounds = [await one_round(target, load) for _ in range(args.rounds)]
        return rounds, await unaccompanied(target, load, 8.0)

    show(*asyncio.run(measure()))


def _check(answer: httpx.Response) -> None:
    if answer.status_code != 200:
        raise NoFigures(f"HTTP {answer.status_code}: {answer.text[:300]}")


if __name__ == "__main__":
    main()
