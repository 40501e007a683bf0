"""Answers of the Responses API, kept for a time so that a later request may go on from them.

A tenant sees its own alone; one that has expired is as one that never was.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from psycopg.types.json import Jsonb

from db.database import Database
from db.errors import InvalidValue, NotFound
from db.query import all_rows, load, one_row
from db.requests import storable
from db.rows import ResponseRow, ResponseTurn

_Q = load("responses")
_JSON = ("input_items", "output_items", "answer")

MAX_TURNS = 512
MAX_OCTETS = 32 << 20
EXPIRED_AT_ONCE = 1000


def insert(db: Database, row: ResponseRow) -> None:
    """Keep an answer. Characters that Postgres can not hold become U+FFFD.

    Raises:
        InvalidValue: a value the table refuses.
    """
    values = asdict(row) | {name: Jsonb(storable(getattr(row, name))) for name in _JSON}
    with db.transaction() as connection:
        connection.execute(_Q["insert"], values)


def get(db: Database, tenant: str, response_id: str) -> ResponseRow:
    """Return one answer.

    Raises:
        NotFound: the tenant has no such answer.
    """
    with db.transaction() as connection:
        return one_row(connection, ResponseRow, _Q["get"], "response", {"id": response_id, "tenant": tenant})


def chain(
    db: Database,
    tenant: str,
    response_id: str,
    *,
    max_turns: int = MAX_TURNS,
    max_octets: int = MAX_OCTETS,
) -> list[ResponseTurn]:
    """Return an answer and all that it went on from, oldest first.

    Raises:
        NotFound: the tenant has no such answer, or one that it went on from is gone.
        InvalidValue: there are more turns, or more bytes of them, than the bounds allow.
    """
    bounds = {"max_turns": max_turns, "max_octets": max_octets}
    with db.transaction() as connection:
        turns = all_rows(
            connection, ResponseTurn, _Q["chain"], {"id": response_id, "tenant": tenant, **bounds}
        )
    if not turns:
        raise NotFound("it was never kept, or is deleted or expired")
    oldest = turns[0]
    if oldest.turns > max_turns or oldest.octets > max_octets:
        raise InvalidValue(
            f"the conversation has {oldest.turns} turns and {oldest.octets} bytes or more; "
            f"at most {max_turns} turns and {max_octets} bytes are allowed"
        )
    if oldest.previous_id is not None:
        raise NotFound("one that it went on from is deleted or expired")
    return turns


def items(db: Database, tenant: str, response_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return all items of some answers of a tenant, and of what was handed in for them."""
    with db.transaction() as connection:
        rows = connection.execute(_Q["items"], {"ids": list(response_ids), "tenant": tenant}).fetchall()
    return [row["item"] for row in rows]


def delete(db: Database, tenant: str, response_id: str) -> bool:
    """Forget an answer; False when the tenant has none such."""
    with db.transaction() as connection:
        return connection.execute(_Q["delete"], {"id": response_id, "tenant": tenant}).rowcount == 1


def delete_expired(db: Database) -> int:
    """Forget answers past their time, EXPIRED_AT_ONCE in one transaction; return how many there were."""
    gone = 0
    while True:
        with db.transaction() as connection:
            count = connection.execute(_Q["delete_expired"], {"limit": EXPIRED_AT_ONCE}).rowcount
        gone += count
        if count < EXPIRED_AT_ONCE:
            return gone
