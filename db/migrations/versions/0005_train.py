"""What was trained on what, and how the results were measured."""

from db.migrations.body import run_sql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run_sql(__file__)
