"""Stage 8: from a served answer back to the rows that trained its version, in one query."""

from __future__ import annotations

from rich.console import Console

from db import provenance
from db.rows import AdapterRow, SnapshotRow
from noria.demo import psql
from noria.demo.landing import requests_landed
from noria.demo.ledger import StageRecord
from noria.demo.stages.bring_up import Platform
from noria.demo.traffic import Answer

SHOWN = 6
"""Rows of the answer that are printed."""


def trace(
    platform: Platform,
    answer: Answer,
    adapter: AdapterRow,
    snapshot: SnapshotRow,
    stage: StageRecord,
    console: Console,
) -> None:
    """Ask for the provenance of `answer`; it must name exactly the rows of `snapshot`."""
    stage.require(
        requests_landed(platform.db, [answer]) == 1, f"request {answer.request_id} is not on record"
    )
    rows = provenance.of_request(platform.db, answer.request_id)
    psql.type_in(platform.db.url, psql.provenance(answer.request_id, SHOWN), console)
    stage.figures |= {"request": answer.request_id, "training_rows": len(rows)}
    stage.require(
        {row.adapter_digest for row in rows} == {adapter.digest}, "the answer leads to another adapter"
    )
    stage.require(
        {row.set_hash for row in rows} == {snapshot.set_hash}, "the answer leads to another data set"
    )
    stage.require(len(rows) == snapshot.rows, f"the query names {len(rows)} rows of {snapshot.rows}")
    sources = len({row.source_request_id for row in rows})
    stage.headline = f"one query: answer -> {adapter.id} -> {len(rows)} rows from {sources} earlier answers"
