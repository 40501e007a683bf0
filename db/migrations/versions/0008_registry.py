"""What makes a plain UPDATE of serve.adapter safe: the rules of its statuses, shares and records."""

from db.migrations.body import run_sql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run_sql(__file__)
