"""serve.residency: one statement makes it what the replicas told, so that SQL can ask."""

from datetime import UTC, datetime

from db import residency
from db.database import Database
from db.rows import ResidencyRow

USED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def row(replica: str, digest: str, state: str = "slot", slot: int | None = 1) -> ResidencyRow:
    return ResidencyRow(
        replica=replica,
        base_model="tiny",
        adapter_digest=digest,
        state=state,
        slot=slot,
        bytes=10,
        last_use=USED if slot else None,
    )


def test_what_is_recorded_is_all_there_is(db: Database) -> None:
    first = [row("a", "sha256:1"), row("a", "sha256:2"), row("b", "sha256:1")]
    residency.record(db, first)
    assert residency.rows(db) == first
    second = [row("a", "sha256:1", "host", None), row("c", "sha256:3")]
    residency.record(db, second)
    assert residency.rows(db) == second
    residency.record(db, [])
    assert residency.rows(db) == []
