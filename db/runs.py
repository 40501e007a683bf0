"""Training runs: one row a run, one point a reported step. A closed run never opens again."""

from psycopg.types.json import Jsonb

from db.database import Database
from db.errors import Conflict
from db.query import load, one_row
from db.requests import storable
from db.rows import Json, RunRow

_Q = load("runs")


def start_run(
    db: Database,
    *,
    endpoint: str,
    adapter_id: str,
    method: str,
    snapshot_id: str,
    base_model: str,
    base_digest: str,
    params: Json,
    versions: Json,
    total_steps: int | None = None,
    parent: str | None = None,
) -> RunRow:
    """Open a run.

    Raises:
        NotFound: no such endpoint, snapshot, base model or parent adapter.
    """
    values = {
        "endpoint": endpoint,
        "adapter_id": adapter_id,
        "method": method,
        "snapshot_id": snapshot_id,
        "base_model": base_model,
        "base_digest": base_digest,
        "parent": parent,
        "params": Jsonb(storable(dict(params))),
        "versions": Jsonb(storable(dict(versions))),
        "total_steps": total_steps,
    }
    with db.transaction() as connection:
        made = connection.execute(_Q["start"], values).fetchone()
        assert made is not None, "INSERT ... RETURNING returns its row"
        return one_row(connection, RunRow, _Q["run"], "run", {"id": made["id"]})


def progress(db: Database, run_id: str, step: int, figures: Json, *, total_steps: int | None = None) -> None:
    """Note a step of a running run with its figures (loss, ...): the heartbeat and a point of the curve.

    Raises:
        Conflict: the run is closed, or there is none: whoever trains on must stop.
    """
    values = {
        "id": run_id,
        "step": step,
        "figures": Jsonb(storable(dict(figures))),
        "total_steps": total_steps,
    }
    with db.transaction() as connection:
        _must_be_running(run_id, connection.execute(_Q["progress"], values).rowcount)
        connection.execute(_Q["point"], values)


def finish_run(db: Database, run_id: str, *, adapter_digest: str, figures: Json) -> RunRow:
    """Close a running run with the digest it made and its last figures.

    Raises:
        Conflict: the run is closed already, or there is none.
    """
    values = {"id": run_id, "adapter_digest": adapter_digest, "figures": Jsonb(storable(dict(figures)))}
    with db.transaction() as connection:
        _must_be_running(run_id, connection.execute(_Q["finish"], values).rowcount)
        return one_row(connection, RunRow, _Q["run"], "run", {"id": run_id})


def fail_run(db: Database, run_id: str, error: str) -> RunRow:
    """Close a running run with the reason of its failure.

    Raises:
        Conflict: the run is closed already, or there is none.
    """
    with db.transaction() as connection:
        closed = connection.execute(_Q["fail"], {"id": run_id, "error": storable(error)}).rowcount
        _must_be_running(run_id, closed)
        return one_row(connection, RunRow, _Q["run"], "run", {"id": run_id})


def get(db: Database, run_id: str) -> RunRow:
    """Return a run by id, or raise NotFound."""
    with db.transaction() as connection:
        return one_row(connection, RunRow, _Q["run"], "run", {"id": run_id})


def curve(db: Database, run_id: str) -> list[tuple[int, Json]]:
    """Return the reported (step, figures) of a run, in order."""
    with db.transaction() as connection:
        points = connection.execute(_Q["curve"], {"id": run_id}).fetchall()
    return [(point["step"], point["figures"]) for point in points]


def _must_be_running(run_id: str, changed: int) -> None:
    if changed != 1:
        raise Conflict(f"run {run_id} is not running: closed, or never started")
