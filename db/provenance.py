"""From any answer back to the rows that taught its adapter, and from any row to the adapters it taught.

The SQL functions obs.provenance(request id) and obs.taught_by(request id) answer the same in psql.
"""

from db.database import Database
from db.query import all_rows, load
from db.rows import ProvenanceRow, TaughtRow

_Q = load("provenance")


def of_request(db: Database, request_id: str) -> list[ProvenanceRow]:
    """Return one row per training example behind a request; one without training part for the base model.

    Empty when the request is not known.
    """
    with db.transaction() as connection:
        return all_rows(connection, ProvenanceRow, _Q["of_request"], {"request_id": request_id})


def taught_by(db: Database, request_id: str) -> list[TaughtRow]:
    """Return every adapter that was trained on a request's row, retired ones and all."""
    with db.transaction() as connection:
        return all_rows(connection, TaughtRow, _Q["taught_by"], {"request_id": request_id})
