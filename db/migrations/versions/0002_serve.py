"""What is served: tenants, base models, endpoints and the registry of adapters."""

from db.migrations.body import run_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_sql(__file__)
