"""Figures of a running canary and the way back from an answer to what taught it."""

from db.migrations.body import run_sql

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    run_sql(__file__)
