"""What is served: base models, endpoints and adapters, and one consistent picture of them for routers.

Changes of status are in db.promotion. Every change bumps the epoch and wakes db.notify's listeners.
"""

from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb

from db.database import Connection, Database
from db.errors import Conflict
from db.query import all_rows, load, one_row
from db.rows import (
    AdapterEventRow,
    AdapterRow,
    BaseModelRow,
    EndpointRow,
    Json,
    RegistryRows,
)

_Q = load("registry")
_REPEATABLE = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


def epoch(db: Database) -> int:
    """Return the registry's epoch: equal epochs mean equal snapshots."""
    with db.transaction() as connection:
        return _epoch(connection)


def version(db: Database) -> tuple[int, str]:
    """Return epoch and mark: equal ones mean equal snapshots, also where a backup was restored meanwhile."""
    with db.transaction() as connection:
        return _version(connection)


def snapshot(db: Database, since: RegistryRows | None = None) -> RegistryRows:
    """Return what routers need, all of one moment: adapters that are loaded, canary or prod.

    `since` is an earlier answer: then only what has changed is read, if the database still knows. The answer
    is the same without it.
    """
    with db.transaction() as connection:
        connection.execute(_REPEATABLE)
        epoch, mark = _version(connection)
        known = None if since is None else _changed_since(connection, since)
        if since is None or known is None:
            return RegistryRows(epoch=epoch, mark=mark, adapters=_served(connection), **_frame(connection))
        frame = _frame(connection) if known["others"] else _frame_of(since)
        adapters = since.adapters
        if changed := known["adapters"]:
            adapters = _merged(adapters, changed, _served(connection, changed))
        return RegistryRows(epoch=epoch, mark=mark, adapters=adapters, **frame)


def register_base_model(db: Database, name: str, digest: str, folder: str) -> BaseModelRow:
    """Add a base model, or note its new digest or folder."""
    with db.transaction() as connection:
        connection.execute(_Q["register_base_model"], {"name": name, "digest": digest, "folder": folder})
        return one_row(connection, BaseModelRow, _Q["base_model"], "base model", {"name": name})


def create_endpoint(db: Database, name: str, base_model: str, *, tenant: str = "default") -> EndpointRow:
    """Add an endpoint; the same one again is a no-op.

    Raises:
        Conflict: the endpoint exists with another base model or tenant, or the name is taken.
        NotFound: no such base model or tenant.
    """
    with db.transaction() as connection:
        wanted = {"name": name, "base_model": base_model, "tenant": tenant}
        connection.execute(_Q["create_endpoint"], wanted)
        row = one_row(connection, EndpointRow, _Q["endpoint"], "endpoint", {"name": name})
    if (row.base_model, row.tenant) != (base_model, tenant):
        raise Conflict(
            f"endpoint {name!r} exists for base model {row.base_model!r} and tenant {row.tenant!r}, "
            f"not for {base_model!r} and {tenant!r}"
        )
    return row


def set_anchor(db: Database, endpoint: str, adapter_id: str | None) -> EndpointRow:
    """Pin the adapter that no promotion of the endpoint may fall behind; None unpins.

    Raises:
        NotFound: no such endpoint or adapter.
    """
    with db.transaction() as connection:
        connection.execute(_Q["set_anchor"], {"name": endpoint, "anchor": adapter_id})
        return one_row(connection, EndpointRow, _Q["endpoint"], "endpoint", {"name": endpoint})


def endpoint(db: Database, name: str) -> EndpointRow:
    """Return an endpoint by name, or raise NotFound."""
    with db.transaction() as connection:
        return one_row(connection, EndpointRow, _Q["endpoint"], "endpoint", {"name": name})


def adapter(db: Database, adapter_id: str) -> AdapterRow:
    """Return an adapter by id, whatever its status, or raise NotFound."""
    with db.transaction() as connection:
        return one_row(connection, AdapterRow, _Q["adapter"], "adapter", {"id": adapter_id})


def register_adapter(
    db: Database,
    *,
    id: str,
    digest: str,
    base_model: str,
    store_uri: str,
    config: Json,
    size_bytes: int,
    endpoint: str | None = None,
    parent: str | None = None,
    run_id: str | None = None,
    actor: str | None = None,
) -> AdapterRow:
    """Add an adapter as candidate of an endpoint, or, without one, as an ad hoc adapter.

    The same id with the same digest, base model and endpoint again is a no-op.

    Raises:
        Conflict: the id belongs to another version, or the name to an endpoint or base model.
        NotFound: no such base model, endpoint (on that base model), parent or run.
    """
    with db.transaction(actor=actor) as connection:
        values = {
            "id": id,
            "digest": digest,
            "base_model": base_model,
            "endpoint": endpoint,
            "store_uri": store_uri,
            "config": Jsonb(dict(config)),
            "bytes": size_bytes,
            "parent": parent,
            "run_id": run_id,
        }
        connection.execute(_Q["register_adapter"], values)
        row = one_row(connection, AdapterRow, _Q["adapter"], "adapter", {"id": id})
    if (row.digest, row.base_model, row.endpoint) != (digest, base_model, endpoint):
        raise Conflict(
            f"adapter {id!r} exists with digest {row.digest}, base model {row.base_model!r} and endpoint "
            f"{row.endpoint!r}; a version is never rewritten, choose a new id"
        )
    return row


def publish_adapter(
    db: Database,
    adapter_id: str,
    *,
    digest: str,
    base_model: str,
    store_uri: str,
    config: Json,
    size_bytes: int,
    pinned: bool = False,
    replace: bool = False,
    actor: str | None = None,
) -> bool:
    """Let clients name these weights by `adapter_id`; a new name is an ad hoc adapter.

    False, and nothing has changed, where the name is loaded already and `replace` does not allow another
    version: of several callers at once one gets True. `pinned` adds a pin and takes none away.

    Raises:
        Conflict: the name belongs to an endpoint or base model.
        InvalidValue: the name is a version of an endpoint with another digest, or of another base model.
        NotFound: no such base model.
    """
    values = {
        "id": adapter_id,
        "digest": digest,
        "base_model": base_model,
        "store_uri": store_uri,
        "config": Jsonb(dict(config)),
        "bytes": size_bytes,
        "pinned": pinned,
        "replace": replace,
    }
    with db.transaction(actor=actor) as connection:
        return connection.execute(_Q["publish_adapter"], values).fetchone() is not None


def set_loaded(db: Database, adapter_id: str, loaded: bool, *, actor: str | None = None) -> AdapterRow:
    """Let clients name the adapter by its own id, or no longer; its part in an endpoint stays."""
    return _changed(db, "set_loaded", adapter_id, actor, {"loaded": loaded})


def set_pinned(db: Database, adapter_id: str, pinned: bool, *, actor: str | None = None) -> AdapterRow:
    """Have every replica keep the adapter resident, or no longer. It ends when the adapter is served no more.

    Raises:
        IllegalTransition: it is neither loaded nor part of an endpoint's traffic.
        NotFound: no such adapter.
    """
    return _changed(db, "set_pinned", adapter_id, actor, {"pinned": pinned})


def page(
    db: Database,
    *,
    limit: int,
    after: str | None = None,
    endpoint: str | None = None,
    status: str | None = None,
    base_model: str | None = None,
    loaded: bool | None = None,
) -> list[AdapterRow]:
    """Return the first `limit` adapters behind the id `after`, by id; a filter that is None is none."""
    wanted = {
        "limit": limit,
        "after": after,
        "endpoint": endpoint,
        "status": status,
        "base_model": base_model,
        "loaded": loaded,
    }
    with db.transaction() as connection:
        return all_rows(connection, AdapterRow, _Q["page"], wanted)


def events(
    db: Database, *, endpoint: str | None = None, adapter_id: str | None = None, limit: int = 100
) -> list[AdapterEventRow]:
    """Return what happened to an endpoint's adapters, or to one adapter, newest first."""
    with db.transaction() as connection:
        wanted = {"endpoint": endpoint, "adapter_id": adapter_id, "limit": limit}
        return all_rows(connection, AdapterEventRow, _Q["events"], wanted)


def _changed(
    db: Database, query: str, adapter_id: str, actor: str | None, values: dict[str, Any]
) -> AdapterRow:
    with db.transaction(actor=actor) as connection:
        connection.execute(_Q[query], {**values, "id": adapter_id})
        return one_row(connection, AdapterRow, _Q["adapter"], "adapter", {"id": adapter_id})


def _version(connection: Connection) -> tuple[int, str]:
    row = connection.execute(_Q["version"]).fetchone()
    assert row is not None, "the migration writes the epoch's only row"
    return int(row["epoch"]), str(row["mark"])


def _changed_since(connection: Connection, since: RegistryRows) -> dict[str, Any] | None:
    """`adapters`: ids of those that changed; `others`: whether anything else did. None if it is not known."""
    return connection.execute(_Q["changes"], {"epoch": since.epoch, "mark": since.mark}).fetchone()


def _served(connection: Connection, ids: Sequence[str] | None = None) -> tuple[AdapterRow, ...]:
    return tuple(all_rows(connection, AdapterRow, _Q["adapters"], {"ids": ids}))


def _frame(connection: Connection) -> dict[str, Any]:
    return {
        "base_models": tuple(all_rows(connection, BaseModelRow, _Q["base_models"])),
        "endpoints": tuple(all_rows(connection, EndpointRow, _Q["endpoints"])),
    }


def _frame_of(rows: RegistryRows) -> dict[str, Any]:
    return {"base_models": rows.base_models, "endpoints": rows.endpoints}


def _merged(
    rows: Sequence[AdapterRow], changed: Sequence[str], fresh: Sequence[AdapterRow]
) -> tuple[AdapterRow, ...]:
    """The rows with those that changed taken out, and what is served of them put in."""
    out = set(changed)
    return tuple(sorted([*(row for row in rows if row.id not in out), *fresh], key=lambda row: row.id))


def _epoch(connection: Connection) -> int:
    row = connection.execute(_Q["epoch"]).fetchone()
    assert row is not None, "the migration writes the epoch's only row"
    return int(row["epoch"])
