"""The audit ledger: append-only, each event chained to the one before by its hash."""

from db.migrations.body import run_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_sql(__file__)
