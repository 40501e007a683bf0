"""The promotion gate: every reason against a promotion is a row; no row means that it may go ahead."""

from db.migrations.body import run_sql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_sql(__file__)
