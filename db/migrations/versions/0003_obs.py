"""What was asked, answered and said about it, in weekly partitions of UUIDv7 keys."""

from db.migrations.body import run_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_sql(__file__)
