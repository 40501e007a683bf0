"""How soon a new adapter answers: from the load call to its first token, idle and while streams run.

    noria up --data DATA --port 8000 &
    python -m bench.adapter_load http://127.0.0.1:8000 --model FOLDER --folder DATA/adapters

Writes random adapters of ranks 8 and 16 (or --rank) into --folder, which the server must allow, and unloads
each after its turn; every one is new to the server. Beside it the gaps between two tokens of a running
stream: the median while no adapter comes, which is a step, and the longest during the load calls, from there
to the new adapter's first token, and at other times.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import httpx

from bench.adapters import write_adapter
from bench.client import Target, complete, completion_body, offer
from bench.errors import NoFigures
from bench.figures import Outcome
from bench.loads import Load, make_prompts
from bench.report import markdown, write_json
from engine import read_spec

SETTLE_S = 4.0
PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Arrival:
    """One adapter: seconds of one clock."""

    called: float
    loaded: float
    first_token: float


@dataclass(frozen=True, slots=True)
class Gaps:
    """Milliseconds between two tokens of a running stream; all but the median are the longest."""

    median: float
    loading: float
    answering: float
    otherwise: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured."""

    idle: list[Arrival]
    busy: list[Arrival]
    gaps: Gaps


async def bring(http: httpx.AsyncClient, name: str, folder: Path) -> Arrival:
    """Load an adapter, ask it for some tokens, unload it. Raises NoFigures."""
    called = time.perf_counter()
    body = {"lora_name": name, "lora_path": str(folder)}
    answer = await http.post("/load_lora_adapter", json=body)
    loaded = time.perf_counter()
    if answer.status_code != 200:
        raise NoFigures(f"{name} was not loaded: HTTP {answer.status_code}: {answer.text[:300]}")
    prompt = make_prompts(Load(streams=1, requests=1, prompt_tokens=16), seed=time.time_ns())[0]
    outcome = await complete(http, completion_body(name, prompt, 8))
    if outcome.error is not None:
        raise NoFigures(f"{name} did not answer: {outcome.error}")
    await http.post("/unload_lora_adapter", json={"lora_name": name})
    return Arrival(called, loaded, outcome.arrivals[0])


async def bring_all(http: httpx.AsyncClient, folders: Sequence[Path]) -> list[Arrival]:
    arrivals = []
    for folder in folders:
        arrivals.append(await bring(http, folder.name, folder))
        await asyncio.sleep(PAUSE_S)
    return arrivals


def gaps(streams: Sequence[Outcome], arrivals: Sequence[Arrival]) -> Gaps:
    """A gap counts where it touches a load call, else where it touches what follows, else with the others."""
    loading: list[float] = [0.0]
    answering: list[float] = [0.0]
    otherwise: list[float] = [0.0]
    for stream in streams:
        for earlier, later in pairwise(stream.arrivals):
            near = [each for each in arrivals if earlier < each.first_token and each.called < later]
            if any(earlier < each.loaded for each in near):
                loading.append(1e3 * (later - earlier))
            else:
                (answering if near else otherwise).append(1e3 * (later - earlier))
    return Gaps(median(otherwise[1:] or [0.0]), max(loading), max(answering), max(otherwise))


async def measure(target: Target, load: Load, folders: Sequence[Path]) -> Found:
    """Half of the adapters come while nothing runs, the other half while `load` runs. Raises NoFigures."""
    half = len(folders) // 2
    async with target.client(4) as http:
        idle = await bring_all(http, folders[:half])
        prompts = make_prompts(load, seed=time.time_ns())
        running = asyncio.create_task(offer(target, load, prompts, lambda: None))
        await asyncio.sleep(SETTLE_S)
        busy = await bring_all(http, folders[half:])
        if running.done():
            raise NoFigures("the streams ended before the last adapter came; ask for more --output tokens")
        streams = await running
    return Found(idle, busy, gaps(streams, busy))


def table(found: Found, streams: int) -> str:
    """Markdown: medians and the longest, in milliseconds."""
    rows = []
    for name, arrivals in (("idle", found.idle), (f"{streams} streams run", found.busy)):
        loading = [1e3 * (each.loaded - each.called) for each in arrivals]
        first = [1e3 * (each.first_token - each.called) for each in arrivals]
        rows.append([name, *(f"{value:.0f}" for value in (median(loading), median(first), max(first)))])
    return markdown(["", "load call, ms", "call to first token, ms", "longest"], rows)


def main() -> None:
    arguments = _parser().parse_args()
    spec, stamp = read_spec(arguments.model), time.time_ns()
    folders = [arguments.folder.absolute() / f"bench-{stamp}-{i}" for i in range(arguments.adapters)]
    for number, folder in enumerate(folders):
        rank = arguments.rank or (16 if number % 4 < 2 else 8)
        write_adapter(folder, arguments.base, spec, rank, stamp + number)
    load = Load(streams=arguments.streams, requests=arguments.streams, output_tokens=arguments.output)
    target = Target("noria", arguments.url, (arguments.base,))
    try:
        found = asyncio.run(measure(target, load, folders))
    except NoFigures as error:
        sys.exit(f"bench: {error}")
    finally:
        for folder in folders:
            shutil.rmtree(folder)
    print(table(found, load.streams))
    seen = found.gaps
    print(
        f"gap of a running stream: median {seen.median:.1f} ms; longest while an adapter loads "
        f"{seen.loading:.0f} ms ({seen.loading / seen.median:.2f} x), from there to its first token "
        f"{seen.answering:.0f} ms, at other times {seen.otherwise:.0f} ms"
    )
    if arguments.json:
        write_json(arguments.json, asdict(found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--base", default="smollm2-135m", help="its name on the server")
    parser.add_argument("--folder", type=Path, required=True, help="an allowed folder of the server")
    parser.add_argument("--adapters", type=int, default=10)
    parser.add_argument("--rank", type=int, help="of every adapter, in place of 8 and 16")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--output", type=int, default=768, help="tokens of a running stream")
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    main()
