"""Where the time of an engine's step goes, for decode of given rows and for prefill.

    python -m bench.profile --model FOLDER [--rows 1 16] [--adapters 8] [--backend reference] [--json FILE]

schedule    choose what the step computes            prepare   arrays and indices for the model
native      start and end of the native call         sample    logits to tokens
emit        the rest of the engine: advance sequences, blocks, prefix cache, events

The native call tells its own kinds, norms in the product that reads them; those of the reference backend
are watched from here. Times are means of a step; the watch itself costs about a microsecond a call.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int64, memset, sizeof
from pathlib import Path
from typing import Any
from unittest.mock import patch

import engine.models.self_attention
import engine.native.model
import engine.runner
from bench.adapters import random_adapter
from bench.loads import Load, make_prompts
from bench.report import markdown, write_json
from bench.stopwatch import Place, Stopwatch
from engine import Engine, EngineConfig, Request, SamplingParams, read_spec
from engine.attention.reference import ReferenceAttention
from engine.models.adapter_batch import AdapterBatch
from engine.models.linear import DenseLinear, PackedLinear
from engine.models.mlp import GatedMLP
from engine.models.norms import RMSNorm
from engine.models.stack import StackedDecoder
from engine.native.library import KINDS as NATIVE_KINDS
from engine.native.library import open_library
from engine.native.model import NativeModel
from engine.reference import ReferenceModel
from engine.scheduler import Scheduler

CONTEXT = 128
PREFILL = 512
KINDS = (
    *("schedule", "prepare", "native", *NATIVE_KINDS),
    *("linear", "norm", "rotary", "activation", "adapters", "other torch"),
    *("sample", "emit"),
)
PLACES = (
    Place(Engine, "step", "emit"),
    Place(Scheduler, "schedule", "schedule"),
    Place(engine.runner.Runner, "run", "prepare"),
    Place(NativeModel, "sample", "sample"),
    Place(ReferenceModel, "sample", "sample"),
    Place(NativeModel, "scores", "prepare"),
    Place(ReferenceModel, "scores", "prepare"),
    Place(StackedDecoder, "hidden", "other torch"),
    Place(StackedDecoder, "logits", "other torch"),
    Place(GatedMLP, "__call__", "activation"),
    Place(RMSNorm, "__call__", "norm"),
    Place(engine.models.self_attention, "rotate", "rotary"),
    Place(PackedLinear, "__call__", "linear"),
    Place(DenseLinear, "__call__", "linear"),
    Place(ReferenceAttention, "attend", "attention"),
    Place(AdapterBatch, "linear", "adapters"),
)


@contextmanager
def watched(config: EngineConfig, stopwatch: Stopwatch) -> Iterator[Engine]:
    """An engine whose steps the stopwatch sees, its native library included."""

    def open_watched(cache: Path) -> Any:
        library: Any = open_library(cache)
        library.noria_step = stopwatch.wrap(split_by_kind(library, stopwatch), "native")
        return library

    with patch.object(engine.native.model, "open_library", open_watched):
        made = Engine(config)
    with stopwatch.watching(PLACES):
        yield made


def split_by_kind(library: Any, stopwatch: Stopwatch) -> Callable[[Any, Any], int]:
    """The library's step, which moves what it spent from "native" to its own kinds."""
    step, spent = library.noria_step, (c_int64 * len(NATIVE_KINDS))()

    def watched_step(handle: Any, batch: Any) -> int:
        library.noria_watch(handle, spent)
        memset(spent, 0, sizeof(spent))
        result: int = step(handle, batch)
        for kind, nanoseconds in zip(NATIVE_KINDS, spent, strict=True):
            stopwatch.seconds[kind] += nanoseconds / 1e9
            stopwatch.seconds["native"] -= nanoseconds / 1e9
        return result

    return watched_step


def decode(
    made: Engine, stopwatch: Stopwatch, rows: int, steps: int, adapters: list[str]
) -> dict[str, float]:
    """Milliseconds by kind of a step that adds one token to each of `rows` sequences."""
    prompts = make_prompts(Load(streams=rows, requests=rows, prompt_tokens=CONTEXT), seed=rows)
    sampling = SamplingParams(max_tokens=rows + steps + 8, temperature=0.0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        adapter = adapters[number % len(adapters)] if adapters else None
        made.add(Request(str(number), tuple(prompt), sampling, adapter))
    begun: set[str] = set()
    while len(begun) < rows:
        begun |= {event.request_id for event in made.step()}
    stopwatch.reset()
    for _ in range(steps):
        made.step()
    spent = _milliseconds(stopwatch, steps)
    _end_all(made, rows)
    return spent


def prefill(made: Engine, stopwatch: Stopwatch, repeats: int) -> dict[str, float]:
    """Milliseconds by kind of a step that takes in PREFILL tokens of one prompt."""
    prompts = make_prompts(Load(streams=1, requests=repeats + 1, prompt_tokens=PREFILL), seed=PREFILL)
    for number, prompt in enumerate(prompts):
        if number == 1:  # the first warms up
            stopwatch.reset()
        made.add(Request(str(number), tuple(prompt), SamplingParams(max_tokens=1, temperature=0.0)))
        made.step()
    return _milliseconds(stopwatch, repeats)


def _milliseconds(stopwatch: Stopwatch, steps: int) -> dict[str, float]:
    return {kind: 1e3 * stopwatch.seconds[kind] / steps for kind in KINDS if kind in stopwatch.seconds}


def _end_all(made: Engine, rows: int) -> None:
    for number in range(rows):
        made.abort(str(number))
    while made.has_work:
        made.step()


def table(found: dict[str, dict[str, float]]) -> str:
    """Markdown: a row for each kind of step, a column for each kind of work that took time."""
    kinds = [kind for kind in KINDS if any(kind in spent for spent in found.values())]
    rows = [
        [name, f"{sum(spent.values()):.2f}", *(f"{spent.get(kind, 0.0):.2f}" for kind in kinds)]
        for name, spent in found.items()
    ]
    return markdown(["step, ms", "all", *kinds], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--adapters", type=int, default=0, help="of ranks 8 and 16; decode only")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--backend", default="auto", choices=["auto", "native", "reference"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    config = EngineConfig(
        model=arguments.model,
        dtype=arguments.dtype,
        backend=arguments.backend,
        max_num_seqs=max(arguments.rows),
        max_batched_tokens=max(PREFILL, *arguments.rows),
        adapter_slots=arguments.adapters,
    )
    spec, stopwatch = read_spec(config.model), Stopwatch()
    found: dict[str, dict[str, float]] = {}
    with watched(config, stopwatch) as made:
        digests = []
        for number in range(arguments.adapters):
            weights = random_adapter(spec, 16 if number % 2 else 8, number)
            made.add_adapter(made.prepare_adapter(weights))
            digests.append(weights.digest)
        for rows in arguments.rows:
            found[f"decode, {rows} row{'s' if rows > 1 else ''}"] = decode(
                made, stopwatch, rows, arguments.steps, digests
            )
        found[f"prefill, {PREFILL} tokens"] = prefill(made, stopwatch, repeats=3)
    print(table(found))
    if arguments.json:
        write_json(arguments.json, {"milliseconds": found})


if __name__ == "__main__":
    main()
