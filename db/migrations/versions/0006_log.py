"""The log as people query it, what feedback holds now, and who may be learned from."""

from db.migrations.body import run_sql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_sql(__file__)
