"""Files of clients and batches of requests, with the lease that a gateway works on a batch under."""

from db.migrations.body import run_sql

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    run_sql(__file__)
