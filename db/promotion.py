"""Changes of an adapter's status: thin names for `UPDATE serve.adapter`, whose triggers hold the rules."""

from contextlib import suppress

from db.database import Database
from db.errors import DbError, GateClosed
from db.query import all_rows, load, one_row
from db.registry import adapter
from db.rows import AdapterRow, AdapterStatus, BlockerRow

_Q = load("promotion")
_ADAPTER = load("registry")["adapter"]


def set_status(
    db: Database,
    adapter_id: str,
    status: AdapterStatus,
    *,
    traffic_pct: float | None = None,
    override_reason: str | None = None,
    actor: str | None = None,
) -> AdapterRow:
    """Move an adapter to a status; `traffic_pct` counts for a canary only.

    Raises:
        NotFound: no such adapter.
        IllegalTransition: the status can not follow the present one.
        GateClosed: becoming prod has blockers and no `override_reason` was given.
        Conflict: the share does not fit beside the endpoint's other canaries.
        InvalidValue: a share outside 0 to 100, or an adapter without an endpoint.
    """
    values = {"id": adapter_id, "status": status, "traffic_pct": traffic_pct}
    try:
        with db.transaction(actor=actor, override_reason=override_reason) as connection:
            connection.execute(_Q["set_status"], values)
            return one_row(connection, AdapterRow, _ADAPTER, "adapter", {"id": adapter_id})
    except GateClosed as closed:
        found: list[BlockerRow] = []
        with suppress(DbError):
            found = blockers(db, adapter_id)
        raise GateClosed(str(closed), tuple(found)) from closed


def promote(
    db: Database, adapter_id: str, *, override_reason: str | None = None, actor: str | None = None
) -> AdapterRow:
    """Make an adapter the prod of its endpoint; the old prod is retired in the same transaction."""
    return set_status(db, adapter_id, "prod", override_reason=override_reason, actor=actor)


def rollback(db: Database, endpoint: str, *, actor: str | None = None) -> AdapterRow | None:
    """Undo the last promotion of an endpoint; return its prod now, None when the base model serves.

    Raises:
        NotFound: no such endpoint, or it has no prod.
    """
    with db.transaction(actor=actor) as connection:
        row = connection.execute(_Q["rollback"], {"endpoint": endpoint}).fetchone()
    return adapter(db, row["id"]) if row is not None and row["id"] is not None else None


def start_canary(db: Database, adapter_id: str, pct: float, *, actor: str | None = None) -> AdapterRow:
    """Give a candidate a sticky share of its endpoint's users, or change the share of a running canary."""
    return set_status(db, adapter_id, "canary", traffic_pct=pct, actor=actor)


def stop_canary(db: Database, adapter_id: str, *, actor: str | None = None) -> AdapterRow:
    """Take a canary's share away; it is a candidate again."""
    return set_status(db, adapter_id, "candidate", actor=actor)


def blockers(db: Database, candidate: str, current: str | None = None) -> list[BlockerRow]:
    """Return every reason against promoting over `current` (None: the endpoint's prod, or its base)."""
    with db.transaction() as connection:
        wanted = {"candidate": candidate, "current": current}
        return all_rows(connection, BlockerRow, _Q["blockers"], wanted)


def can_promote(db: Database, candidate: str, current: str | None = None) -> bool:
    """Tell whether nothing stands against the promotion."""
    return not blockers(db, candidate, current)
