"""Frozen datasets: rows, the SQL and parameters that chose them, and one hash over them all.

The same parameters with the same `as_of` give the same set, whatever was written meanwhile and
however the tables lie on disk. Only chats without tools, eligible by obs.eligibility_at, are offered.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Json as AsJson
from psycopg.types.json import Jsonb

from db.canonical import sha256_hex
from db.database import Connection, Database
from db.errors import EmptySnapshot, NotFound
from db.query import all_rows, load, one_row
from db.rows import FreezeParams, SnapshotItem, SnapshotRow

_Q = load("datasets")

# In the order of the filters; the first seven count requests, the rest examples (a request may offer two).
REQUEST_COUNTS = ("requests", "traffic", "finished", "content", "clean", "consent", "chat")
EXAMPLE_FILTERS = ("length", "held_out", "conflict", "duplicate", "user_cap")


def freeze_kto(db: Database, params: FreezeParams) -> SnapshotRow:
    """Freeze the examples for KTO (prompt, completion, label) of one endpoint.

    Examples come from thumbs, from edits (the edited text desirable, the answer undesirable), from
    answers asked again and left unrated (undesirable) and from unrated ends of such chains after
    which the talk went on (desirable). Users' votes on the same prompt and completion are settled by
    majority, a tie drops them; then exact duplicates and what exceeds a user's cap fall.

    Raises:
        EmptySnapshot: nothing is left; carries the counts.
        ValueError: `as_of` lies in the future or has no time zone.
        Conflict: a writer held the log for longer than ten seconds.
    """
    as_of = _settled_moment(db, params.as_of)
    values = {
        "tenant": params.tenant,
        "endpoint": params.endpoint,
        "as_of": as_of.isoformat(),
        "since": params.since.isoformat() if params.since else None,
        "seed": params.seed,
        "per_user_cap": params.per_user_cap,
        "min_chars": params.min_chars,
        "max_chars": params.max_chars,
        "held_out": sorted(params.held_out),
    }
    with db.transaction() as connection:
        connection.execute(_Q["analyse"])
    with db.transaction(actor=params.created_by) as connection:
        found = connection.execute(_Q["kto"], values).fetchall()
        counts = _counts(found)
        kept = [row for row in found if row["fell_at"] is None and row["request_id"] is not None]
        if not kept:
            raise EmptySnapshot(counts)
        head = {
            **values,
            "method": "kto",
            "params": Jsonb(values),
            "sql": _Q["kto"].decode(),
            "counts": AsJson(counts),
            "rows": len(kept),
            "desirable": sum(row["label"] for row in kept),
            "undesirable": sum(not row["label"] for row in kept),
            "set_hash": set_hash(row["payload_hash"] for row in kept),
            "created_by": params.created_by,
        }
        return _store(connection, head, kept)


def show(db: Database, snapshot_id: str) -> SnapshotRow:
    """Return a snapshot by id, or raise NotFound."""
    with db.transaction() as connection:
        return one_row(connection, SnapshotRow, _Q["snapshot"], "snapshot", {"id": snapshot_id})


def latest(db: Database, endpoint: str) -> SnapshotRow | None:
    """Return the newest snapshot of an endpoint, None when there is none."""
    with db.transaction() as connection:
        found = all_rows(connection, SnapshotRow, _Q["latest"], {"endpoint": endpoint})
    return found[0] if found else None


def rows(db: Database, snapshot_id: str) -> list[SnapshotItem]:
    """Return the examples in the order in which they are to be trained: shuffled, labels spread evenly.

    Raises:
        NotFound: no such snapshot.
    """
    with db.transaction() as connection:
        found = all_rows(connection, SnapshotItem, _Q["rows"], {"id": snapshot_id})
    if not found:
        raise NotFound(f"no snapshot has the id {snapshot_id!r}")
    return found


def verify(db: Database, snapshot_id: str) -> bool:
    """Tell whether the stored rows are still what was frozen: each payload hash and the hash of the set."""
    head = show(db, snapshot_id)
    stored = rows(db, snapshot_id)
    with db.transaction() as connection:
        check = connection.execute(_Q["damaged"], {"id": snapshot_id}).fetchone()
    assert check is not None, "an aggregate returns one row"
    whole = check["damaged"] == 0 and len(stored) == head.rows
    return whole and set_hash(item.payload_hash for item in stored) == head.set_hash


def replay(db: Database, snapshot_id: str) -> str:
    """Run the frozen SQL with the frozen parameters again and return the hash of the set that it gives."""
    head = show(db, snapshot_id)
    with db.transaction() as connection:
        found = connection.execute(head.sql.encode(), dict(head.params)).fetchall()
    return set_hash(row["payload_hash"] for row in found if row["fell_at"] is None and row["request_id"])


def set_hash(payload_hashes: Iterable[str]) -> str:
    """Return the hash of a set of examples, whatever their order: sha256 over the sorted payload hashes."""
    return sha256_hex("\n".join(sorted(payload_hashes)))


def _settled_moment(db: Database, wanted: datetime | None) -> datetime:
    """Return the moment to freeze at, once every writer that could still record before it has ended."""
    with db.transaction() as connection:
        connection.execute(_Q["lock_timeout"])
        connection.execute(_Q["wait_for_writers"])
        row = connection.execute(_Q["moment"]).fetchone()
    assert row is not None, "a constant query returns one row"
    now: datetime = row["now"]
    if wanted is None:
        return now
    if wanted.tzinfo is None or wanted > now:
        raise ValueError(
            f"as_of {wanted.isoformat()} must have a time zone and not be after {now.isoformat()}"
        )
    return wanted


def _counts(found: Sequence[dict[str, Any]]) -> dict[str, int]:
    counts = {name: int(found[0][name]) for name in REQUEST_COUNTS}
    fell = Counter(row["fell_at"] for row in found if row["request_id"] is not None)
    left = counts["offered"] = sum(fell.values())
    for name in EXAMPLE_FILTERS:
        left -= fell[name]
        counts[name] = left
    return counts


def _store(connection: Connection, head: dict[str, Any], kept: Sequence[dict[str, Any]]) -> SnapshotRow:
    made = connection.execute(_Q["insert_snapshot"], head).fetchone()
    assert made is not None, "INSERT ... RETURNING returns its row"
    snapshot_id = made["id"]
    columns = ("request_id", "origin", "label", "payload", "payload_hash")
    with connection.cursor() as cursor, cursor.copy(_Q["copy_rows"]) as copy:
        for place, row in enumerate(kept):
            copy.write_row((snapshot_id, place, *(row[column] for column in columns)))
    connection.execute(_Q["audit"], {"id": snapshot_id, "set_hash": head["set_hash"], "rows": head["rows"]})
    return one_row(connection, SnapshotRow, _Q["snapshot"], "snapshot", {"id": snapshot_id})
