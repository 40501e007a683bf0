"""A suite is data: suites/<name>/suite.toml says how to ask and what must hold, cases.jsonl holds the cases.

suite.toml:
    tasks = ["facts", "stops"]        # files under evals/tasks
    max_tokens = 96                   # of one answer
    temperature = 0.0
    [[metric]]
    name = "facts"                    # a metric of one of the tasks
    direction = "higher"              # or "lower"
    floor = 0.5                       # on the confidence bound nearest to it; absent: no floor
    tolerance = 0.1                   # how much worse than the current version it may be
    min_n = 20
    max_unscored = 0.05               # share of unscored values above which the result is void
    required = true

cases.jsonl, one object a line: {"id", "prompt" or "messages", "expect": [...], "language": "en"}.
The suite hash covers all of it, so a changed case, prompt or floor makes older results incomparable.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from evals.completer import Message
from evals.errors import SuiteError

SUITES = Path(str(files("evals"))) / "suites"


@dataclass(frozen=True, slots=True)
class Case:
    """One question, with what a task needs to judge the answer."""

    id: str
    messages: tuple[Message, ...]
    expect: tuple[str, ...] = ()
    language: str | None = None


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """What the gate asks of one metric. Floors and tolerances are in the metric's own unit."""

    name: str
    direction: Literal["higher", "lower"]
    floor: float | None
    tolerance: float
    min_n: int
    max_unscored: float
    required: bool


@dataclass(frozen=True, slots=True)
class Suite:
    """A loaded suite; `hash` is "sha256:<hex>" over everything below."""

    name: str
    tasks: tuple[str, ...]
    max_tokens: int
    temperature: float
    metrics: tuple[MetricSpec, ...]
    cases: tuple[Case, ...]
    hash: str


def suite_names(root: Path = SUITES) -> tuple[str, ...]:
    """Names of the suites that ship with noria (or lie under `root`)."""
    return tuple(sorted(path.parent.name for path in root.glob("*/suite.toml")))


def load_suite(name: str, root: Path = SUITES) -> Suite:
    """Read and check one suite. Raises: SuiteError."""
    folder = root / name
    if not (folder / "suite.toml").is_file():
        raise SuiteError(
            f"no suite {name!r} under {root}; there are: {', '.join(suite_names(root)) or 'none'}"
        )
    try:
        spec = tomllib.loads((folder / "suite.toml").read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{folder / 'suite.toml'}: {error}") from error
    try:
        tasks = tuple(str(task) for task in spec["tasks"])
        metrics = tuple(_metric(entry, folder) for entry in spec["metric"])
        asking = (int(spec["max_tokens"]), float(spec.get("temperature", 0.0)))
    except KeyError as error:
        raise SuiteError(f"{folder / 'suite.toml'}: {error.args[0]!r} is missing") from error
    cases = _cases(folder / "cases.jsonl")
    digest = _hash(name, tasks, asking, metrics, cases)
    return Suite(name, tasks, asking[0], asking[1], metrics, cases, digest)


def _metric(entry: Mapping[str, Any], folder: Path) -> MetricSpec:
    direction = entry["direction"]
    if direction not in ("higher", "lower"):
        raise SuiteError(f"{folder / 'suite.toml'}: direction {direction!r}; allowed: 'higher', 'lower'")
    floor = entry.get("floor")
    return MetricSpec(
        name=str(entry["name"]),
        direction=direction,
        floor=None if floor is None else float(floor),
        tolerance=float(entry["tolerance"]),
        min_n=int(entry["min_n"]),
        max_unscored=float(entry.get("max_unscored", 0.05)),
        required=bool(entry.get("required", True)),
    )


def _cases(path: Path) -> tuple[Case, ...]:
    if not path.is_file():
        raise SuiteError(f"{path} is missing")
    cases: list[Case] = []
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        case = _case(line, f"{path}:{number}")
        if case.id in seen:
            raise SuiteError(f"{path}:{number}: the id {case.id!r} is used twice")
        seen.add(case.id)
        cases.append(case)
    if not cases:
        raise SuiteError(f"{path} holds no case")
    return tuple(cases)


def _case(line: str, where: str) -> Case:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise SuiteError(f"{where}: not JSON: {error}") from error
    if "id" not in entry or ("prompt" in entry) == ("messages" in entry):
        raise SuiteError(
            f"{where}: needs 'id' and exactly one of 'prompt' and 'messages', has {sorted(entry)}"
        )
    turns = entry.get("messages") or [{"role": "user", "content": entry["prompt"]}]
    return Case(
        id=str(entry["id"]),
        messages=tuple(Message(role=turn["role"], content=turn["content"]) for turn in turns),
        expect=tuple(str(text) for text in entry.get("expect", ())),
        language=entry.get("language"),
    )


def _hash(
    name: str,
    tasks: tuple[str, ...],
    asking: tuple[int, float],
    metrics: tuple[MetricSpec, ...],
    cases: tuple[Case, ...],
) -> str:
    content = {
        "name": name,
        "tasks": tasks,
        "max_tokens": asking[0],
        "temperature": asking[1],
        "metrics": [asdict(metric) for metric in metrics],
        "cases": [asdict(case) for case in cases],
    }
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
