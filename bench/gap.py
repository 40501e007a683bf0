"""How long running streams wait for a token while a long prompt is taken in beside them.

    python -m bench.gap --model FOLDER [--streams 8] [--prompt 16000] [--budget 512] [--unweighed]

The longest time between two tokens of any stream, without the prompt and with it. Beside it stands the share
that a step's budget grants the prompt: the time of a step that takes in a whole budget of a fresh prompt. The
model's own positions do not matter here: a copy of its folder that allows for the prompt is measured. With
--unweighed the budget counts all tokens alike, whatever context they have.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from bench.loads import Load, make_prompts
from bench.report import markdown, write_json
from engine import Engine, EngineConfig, ModelSpec, Request, SamplingParams

CONTEXT = 128  # tokens of each stream's own prompt
STEPS = 64  # without the prompt
LONG = "long"


@dataclass(frozen=True, slots=True)
class Gaps:
    """Milliseconds between tokens of one stream: the longest, and the median; and the steps they are of."""

    longest_ms: float
    median_ms: float
    steps: int


def stretched(model: Path, folder: Path, positions: int) -> Path:
    """A folder with the model's files, whose configuration allows `positions`."""
    for file in model.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    config = json.loads((model / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": positions}))
    return folder


def start_streams(engine: Engine, streams: int, steps: int) -> None:
    """Have `streams` requests run that will not end within `steps` steps."""
    prompts = make_prompts(Load(streams=streams, requests=streams, prompt_tokens=CONTEXT), seed=1)
    sampling = SamplingParams(max_tokens=steps, temperature=0.0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        engine.add(Request(str(number), tuple(prompt), sampling))
    begun: set[str] = set()
    while len(begun) < streams:
        begun |= {event.request_id for event in engine.step()}


def watch(engine: Engine, steps: int | None) -> Gaps:
    """Step so often, or until the long prompt has its first token."""
    gaps: list[float] = []
    before = time.perf_counter()
    while steps is None or len(gaps) < steps:
        events = engine.step()
        now = time.perf_counter()
        # Every stream has a token in every step, so the step is the gap.
        gaps.append(1e3 * (now - before))
        before = now
        if any(event.request_id == LONG for event in events):
            break
    return Gaps(max(gaps), statistics.median(gaps), len(gaps))


def fresh_budget_ms(engine: Engine, budget: int) -> float:
    """A step in which the streams go on and the rest of the budget is the beginning of a new prompt."""
    times = []
    for number in range(4):
        (prompt,) = make_prompts(Load(streams=1, requests=1, prompt_tokens=2 * budget), seed=50 + number)
        engine.add(Request("fresh", tuple(prompt), SamplingParams(max_tokens=1)))
        start = time.perf_counter()
        engine.step()
        times.append(1e3 * (time.perf_counter() - start))
        engine.abort("fresh")
        engine.step()
    return statistics.median(times[1:])


def measure(engine: Engine, streams: int, prompt_tokens: int, budget: int) -> dict[str, Gaps | float]:
    start_streams(engine, streams, steps=4000)
    alone = watch(engine, STEPS)
    share = fresh_budget_ms(engine, budget)
    (prompt,) = make_prompts(Load(streams=1, requests=1, prompt_tokens=prompt_tokens), seed=9)
    engine.add(Request(LONG, tuple(prompt), SamplingParams(max_tokens=1, temperature=0.0)))
    return {"without": alone, "fresh budget, ms": share, "with": watch(engine, None)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=16_000)
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--unweighed", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if arguments.unweighed:
            stack.enter_context(patch.object(ModelSpec, "attention_balance", lambda spec: math.inf))
        positions = max(arguments.prompt, 2 * arguments.budget) + 64
        model = stretched(arguments.model, Path(folder), positions)
        config = EngineConfig(model=model, max_batched_tokens=arguments.budget, prefix_cache=False)
        found = measure(Engine(config), arguments.streams, arguments.prompt, arguments.budget)
    rows = [
        [name, f"{gaps.longest_ms:.0f}", f"{gaps.median_ms:.0f}", str(gaps.steps)]
        for name, gaps in found.items()
        if isinstance(gaps, Gaps)
    ]
    print(markdown([f"{arguments.prompt} tokens", "longest gap, ms", "median, ms", "steps"], rows))
    print(f"a step with a whole budget of a fresh prompt: {found['fresh budget, ms']:.0f} ms")
    if arguments.json:
        plain = {name: asdict(gaps) if isinstance(gaps, Gaps) else gaps for name, gaps in found.items()}
        write_json(arguments.json, plain)


if __name__ == "__main__":
    main()
