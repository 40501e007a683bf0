"""Types SQL into psql as an operator would, and shows what was typed and what came back.

The statements of the demonstration are for people to read and repeat; programs use the functions of `db`.
"""

from __future__ import annotations

import subprocess

from rich.console import Console

from db.embedded import psql_path
from noria.demo.errors import StageFailed

PATIENCE_S = 60.0


def promotion(adapter_id: str, reason: str | None) -> str:
    """The statement that promotes; `reason` is recorded with it."""
    update = f"UPDATE serve.adapter SET status = 'prod' WHERE id = {literal(adapter_id)};"
    if reason is None:
        return update
    return f"BEGIN;\nSET LOCAL noria.override_reason = {literal(reason)};\n{update}\nCOMMIT;"


def rollback(endpoint: str) -> str:
    """The statement that undoes the last promotion of an endpoint."""
    return f"SELECT serve.rollback({literal(endpoint)});"


def provenance(request_id: str, limit: int) -> str:
    """The query from a served answer to the rows that trained its adapter."""
    return (
        "SELECT adapter_id, left(set_hash, 19) AS data_set, ordinal, source_request_id, origin, label,\n"
        "       count(*) OVER () AS rows_in_all\n"
        f"FROM obs.provenance({literal(request_id)}) LIMIT {limit};"
    )


def literal(text: str) -> str:
    """`text` as an SQL string constant, whatever it holds."""
    doubled = text.replace("'", "''")
    return f" E'{doubled.replace(chr(92), chr(92) * 2)}'" if "\\" in doubled else f"'{doubled}'"


def type_in(url: str, statement: str, console: Console) -> str:
    """Run `statement` and show both sides. Raises StageFailed with what psql says if it is refused."""
    console.print(statement, style="cyan", markup=False)
    done = subprocess.run(
        [str(psql_path()), url, "--no-psqlrc", "--set", "ON_ERROR_STOP=1"],
        input=statement + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise StageFailed(f"psql refused the statement: {done.stderr.strip()}")
    console.print(done.stdout.rstrip(), markup=False, highlight=False)
    return done.stdout
