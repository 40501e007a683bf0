"""Runs the SQL file that lies beside a revision. Revisions go forward only."""

from pathlib import Path

from alembic import op


def run_sql(revision_file: str) -> None:
    """Execute <revision>.sql whole, in the transaction of the migration.

    The driver's own connection takes the text as it is: colons and per cent signs are plain SQL.
    """
    text = Path(revision_file).with_suffix(".sql").read_text()
    driver = op.get_bind().connection.driver_connection
    assert driver is not None, "migrations run online only"
    driver.execute(text.encode())
