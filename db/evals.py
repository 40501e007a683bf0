"""Evaluation suites, what the gate demands of their metrics, and results. Results are only ever added."""

from collections.abc import Sequence
from dataclasses import asdict

from psycopg.types.json import Jsonb

from db.database import Database
from db.query import all_rows, load
from db.requests import storable
from db.rows import EvalCaseRow, EvalMetricRow, EvalResultRow

_Q = load("evals")


def register_suite(
    db: Database, name: str, suite_hash: str, n_cases: int, metrics: Sequence[EvalMetricRow]
) -> None:
    """Note this version of a suite as the one that counts, with the rules for its metrics.

    Raises:
        ValueError: a metric belongs to another suite.
    """
    strange = [metric.suite for metric in metrics if metric.suite != name]
    if strange:
        raise ValueError(f"metrics of suite {strange[0]!r} can not be registered with suite {name!r}")
    with db.transaction() as connection:
        suite = {"name": name, "suite_hash": suite_hash, "n_cases": n_cases}
        connection.execute(_Q["register_suite"], suite)
        for metric in metrics:
            connection.execute(_Q["set_metric"], asdict(metric))


def set_metric(db: Database, metric: EvalMetricRow) -> None:
    """Set the rule for one metric, of one endpoint or (endpoint None) of all that have none of their own.

    Raises:
        InvalidValue: a rule the table refuses, such as a negative tolerance.
        NotFound: no such endpoint.
    """
    with db.transaction() as connection:
        connection.execute(_Q["set_metric"], asdict(metric))


def metrics(db: Database, endpoint: str) -> list[EvalMetricRow]:
    """Return the rules that hold for an endpoint."""
    with db.transaction() as connection:
        return all_rows(connection, EvalMetricRow, _Q["metrics"], {"endpoint": endpoint})


def insert_results(db: Database, results: Sequence[EvalResultRow], cases: Sequence[EvalCaseRow] = ()) -> int:
    """Store one evaluation of one subject on one suite, whole, as its next attempt; return the number.

    Raises:
        ValueError: no results, or results of several subjects or suites.
        InvalidValue: a value that is NaN or infinite, or another the table refuses.
    """
    keys = {(row.subject, row.base_digest, row.suite, row.suite_hash) for row in results}
    if len(keys) != 1:
        raise ValueError(f"one subject and one suite version are wanted, got {sorted(keys) or 'nothing'}")
    key = {name: getattr(results[0], name) for name in ("subject", "base_digest", "suite")}
    with db.transaction() as connection:
        connection.execute(_Q["lock_subject"], key)
        found = connection.execute(_Q["next_attempt"], key).fetchone()
        assert found is not None, "an aggregate returns one row"
        attempt = int(found["attempt"])
        with connection.cursor() as cursor:
            cursor.executemany(_Q["insert_result"], [{**asdict(row), "attempt": attempt} for row in results])
            cursor.executemany(
                _Q["insert_case"],
                [
                    {**storable(asdict(row)), **key, "attempt": attempt, "scores": Jsonb(dict(row.scores))}
                    for row in cases
                ],
            )
    return attempt


def latest(db: Database, subject: str, base_digest: str, suite: str | None = None) -> list[EvalResultRow]:
    """Return the newest attempt of each suite (or of one) for an adapter digest or "base"."""
    with db.transaction() as connection:
        wanted = {"subject": subject, "base_digest": base_digest, "suite": suite}
        return all_rows(connection, EvalResultRow, _Q["latest"], wanted)


def held_out(db: Database) -> tuple[str, ...]:
    """Return the prompt hashes of every evaluation case answered so far: they must never train."""
    with db.transaction() as connection:
        return tuple(row["prompt_hash"] for row in connection.execute(_Q["held_out"]).fetchall())
