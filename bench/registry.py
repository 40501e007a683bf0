"""A registry with many adapters: how long it takes to read, to follow, to ask and to list.

    python -m bench.registry [--adapters 10000] [--endpoints 300] [--models 20]

An embedded server of its own in a temporary folder, without fsync. Adapters are spread evenly over endpoints,
the first of each is prod; a tenth are ad hoc. Medians, in milliseconds where nothing else is said.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.report import markdown
from db import migrate, promotion, registry
from db.database import Database
from db.embedded import EmbeddedPostgres
from lora.kept_rows import KeptRows
from lora.registry import RegistrySnapshot

ROUNDS = 15
CALLS = 20_000
PAGE = 100
CONFIG = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32, "bias": "none",
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Size:
    """How much is registered."""

    adapters: int
    endpoints: int
    models: int


@contextmanager
def filled(size: Size) -> Iterator[Database]:
    """A database with such a registry."""
    with tempfile.TemporaryDirectory(prefix="noria-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", settings={"fsync": "off"})
        url = server.start()
        try:
            migrate.upgrade(url)
            with Database(url) as database:
                fill(database, size)
                yield database
        finally:
            server.stop()


def fill(database: Database, size: Size) -> None:
    """Register it all, in the way the platform does."""
    for number in range(size.models):
        registry.register_base_model(database, f"base-{number}", f"sha256:{number:064x}", f"/models/{number}")
    for number in range(size.endpoints):
        registry.create_endpoint(database, f"endpoint-{number}", f"base-{number % size.models}")
    for number in range(size.adapters):
        endpoint = number % size.endpoints
        registry.register_adapter(
            database,
            id=f"adapter-{number}",
            digest=f"sha256:{number:064x}",
            base_model=f"base-{endpoint % size.models}",
            store_uri=f"store:sha256:{number:064x}",
            config=CONFIG,
            size_bytes=10_000_000,
            endpoint=None if number % 10 == 9 else f"endpoint-{endpoint}",
        )
    for number in range(size.endpoints):
        if number % 10 != 9:
            promotion.start_canary(database, f"adapter-{number}", 10)


def took(work: Callable[[], object], times: int = ROUNDS) -> float:
    """Median milliseconds of one call."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return median(spans) * 1e3


def asked(snapshot: RegistrySnapshot, name: str) -> float:
    """Microseconds to resolve a name and fix its version, mean of many calls."""
    began = time.perf_counter()
    for number in range(CALLS):
        target = snapshot.resolve(name)
        assert target is not None
        snapshot.assign(target, f"user-{number}")
    return (time.perf_counter() - began) / CALLS * 1e6


def paged(database: Database) -> int:
    """Read the whole listing page by page; returns how many there were."""
    seen, after = 0, None
    while page := registry.page(database, limit=PAGE, after=after):
        seen, after = seen + len(page), page[-1].id
    return seen


@dataclass(frozen=True, slots=True)
class Refresh:
    """Milliseconds of each step by which a gateway takes over a change of one adapter."""

    read: float
    index: float
    keep: float


def followed(database: Database, *, whole: bool) -> Refresh:
    """Change one adapter again and again and take it over; `whole` reads all rows each time. Medians."""
    rows, spans, first = registry.snapshot(database), [], 0 if whole else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        kept = KeptRows(Path(folder) / "registry.json")
        kept.write(rows)
        for number in range(first, first + ROUNDS):
            registry.set_loaded(database, f"adapter-{number}", False)
            marks = [time.perf_counter()]
            rows = registry.snapshot(database, None if whole else rows)
            marks.append(time.perf_counter())
            RegistrySnapshot.from_rows(rows)
            marks.append(time.perf_counter())
            kept.write(rows)
            marks.append(time.perf_counter())
            spans.append([(end - begin) * 1e3 for begin, end in pairwise(marks)])
    return Refresh(*(median(step) for step in zip(*spans, strict=True)))


def figures(database: Database) -> Iterator[tuple[str, str]]:
    """Lines of the table."""
    rows = registry.snapshot(database)
    snapshot = RegistrySnapshot.from_rows(rows)
    yield "adapters in the snapshot", f"{len(rows.adapters)}"
    yield "read whole", f"{took(lambda: registry.snapshot(database)):.1f}"
    yield "RegistrySnapshot.from_rows", f"{took(lambda: RegistrySnapshot.from_rows(rows)):.2f}"
    yield "poll without a change", f"{took(lambda: registry.version(database)):.2f}"
    for words, whole in (("everything read again", True), ("changes only", False)):
        step = followed(database, whole=whole)
        yield f"one change, {words}", f"read {step.read:.1f}, index {step.index:.2f}, keep {step.keep:.1f}"
    for name in ("adapter-9", "endpoint-0", "base-0"):
        yield f"resolve and assign {name}, us", f"{asked(snapshot, name):.2f}"
    yield f"a page of {PAGE}", f"{took(lambda: registry.page(database, limit=PAGE, after='adapter-5')):.1f}"
    yield f"all pages of {PAGE}", f"{took(lambda: paged(database), 3):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for field, default in (("adapters", 10_000), ("endpoints", 300), ("models", 20)):
        parser.add_argument(f"--{field}", type=int, default=default)
    with filled(Size(**vars(parser.parse_args()))) as database:
        print(markdown(("", "ms"), list(figures(database))), flush=True)


if __name__ == "__main__":
    main()
