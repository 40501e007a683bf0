"""Answers of the Responses API that a later request may go on from."""

from db.migrations.body import run_sql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    run_sql(__file__)
