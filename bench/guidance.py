"""What grammars cost: rows that follow none in company of rows that do, and the time to compile one.

    python -m bench.guidance --model FOLDER [--rows 16] [--steps 40] [--rounds 8] [--temperature 0]

The numbers of guided rows alternate in short bursts, in random order, so a slow phase of the machine hits
all. A row that follows a grammar writes a JSON array of people without end. Late is the share of its steps in
which its mask was not ready, so that it had no token.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.loads import Load, make_prompts
from bench.report import markdown
from engine import Engine, EngineConfig, Request, SamplingParams
from engine.grammar import Grammar
from engine.grammar_form import MAX_CHARS

PROMPT_TOKENS = 48
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mail": {"type": "string", "format": "email"},
        "likes": {"type": "array", "items": {"enum": ["music", "sport", "food"]}, "maxItems": 3},
    },
    "required": ["name", "age", "mail", "likes"],
    "additionalProperties": False,
}
ENDLESS = Grammar("json_schema", json.dumps({"type": "array", "items": PERSON, "minItems": 500}))


@dataclass(frozen=True, slots=True)
class Burst:
    """ms: of a step. late: of the steps of guided rows."""

    ms: float
    late: float


def burst(engine: Engine, rows: int, guided: int, steps: int, temperature: float) -> Burst:
    """`rows` requests from their first token on, of which `guided` follow the grammar."""
    prompts = make_prompts(Load(streams=rows, requests=rows, prompt_tokens=PROMPT_TOKENS), seed=1)
    for number, prompt in enumerate(prompts):
        sampling = SamplingParams(
            max_tokens=4 * steps,
            temperature=temperature,
            seed=number,
            ignore_eos=True,
            grammar=ENDLESS if number < guided else None,
        )
        engine.add(Request(str(number), tuple(prompt), sampling))
    begun: set[str] = set()
    while len(begun) < rows:
        begun |= {event.request_id for event in engine.step()}
    told = 0
    start = time.perf_counter()
    for _ in range(steps):
        told += sum(int(event.request_id) < guided for event in engine.step())
    ms = 1e3 * (time.perf_counter() - start) / steps
    engine.abort_all()
    engine.step()
    return Burst(ms, 1 - told / (guided * steps) if guided else 0.0)


def company(engine: Engine, rows: int, steps: int, rounds: int, temperature: float) -> list[list[str]]:
    """A line for each number of guided rows; the last column is what a plain row keeps of its speed."""
    numbers = (0, 1, rows)
    found: dict[int, list[Burst]] = {number: [] for number in numbers}
    order = random.Random(1)
    for _ in range(rounds + 1):  # the first warms up
        for number in order.sample(numbers, len(numbers)):
            found[number].append(burst(engine, rows, number, steps, temperature))
    without = [each.ms for each in found[0]]
    lines = []
    for number, bursts in found.items():
        kept = [alone / each.ms for alone, each in zip(without, bursts, strict=True)][1:]
        ms = statistics.median(each.ms for each in bursts[1:])
        late = statistics.mean(each.late for each in bursts[1:])
        lines.append([str(number), f"{ms:.2f}", f"{late:.1%}", f"{statistics.median(kept):.3f}"])
    return lines


def largest(make: Callable[[int], Grammar]) -> Grammar:
    """The largest of a kind that is not too long."""
    low, high = 1, MAX_CHARS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(make(middle).text) <= MAX_CHARS else (low, middle)
    return make(low)


def _schema(properties: int) -> Grammar:
    part = {"type": "string", "pattern": "^[a-z]{1,50}$"}
    names = {f"p{number}": part for number in range(properties)}
    return Grammar("json_schema", json.dumps({"type": "object", "properties": names}))


GRAMMARS: dict[str, Callable[[], Grammar]] = {
    "any JSON object": lambda: Grammar("json_schema", '{"type": "object"}'),
    "a person": lambda: Grammar("json_schema", json.dumps(PERSON)),
    "a regular expression": lambda: Grammar("regex", r"\w{1,500}@\w{1,500}(\.\w{1,500}){1,20}"),
    "128 KiB of choices": lambda: largest(
        lambda count: Grammar("choice", json.dumps([f"choice {n} of many" for n in range(count)]))
    ),
    "128 KiB of alternatives": lambda: largest(
        lambda count: Grammar("regex", "|".join(f"x{n}[a-z]+" for n in range(count)))
    ),
    "128 KiB of properties": lambda: largest(_schema),
}


def compiled(engine: Engine) -> list[list[str]]:
    """A line for each grammar: milliseconds until a request could begin with it."""
    engine.prepare_grammar(Grammar("regex", "the tokenizer is read"))
    lines = []
    for name, make in GRAMMARS.items():
        grammar = make()
        start = time.perf_counter()
        engine.prepare_grammar(grammar)
        lines.append([name, str(len(grammar.text)), f"{1e3 * (time.perf_counter() - start):.1f}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    engine = Engine(EngineConfig(model=arguments.model))
    print(markdown(["grammar", "characters", "ms to compile"], compiled(engine)))
    lines = company(engine, arguments.rows, arguments.steps, arguments.rounds, arguments.temperature)
    print(markdown(["guided rows", "ms a step", "late", "speed of a plain row"], lines))


if __name__ == "__main__":
    main()
