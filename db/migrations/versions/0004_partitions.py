"""Weekly partitions of obs: made ahead, watched, and listed for the retention job to drop."""

from db.migrations.body import run_sql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_sql(__file__)
