"""The schema as one readable text: db/schema.sql, which a test compares with what the migrations make.

    python -m db.schema URL > db/schema.sql

The weekly partitions, which depend on the day, and Alembic's own table are left out.
"""

import re
import subprocess
import sys
from pathlib import Path

from db.embedded import binaries
from db.errors import MigrationError

RECORDED = Path(__file__).parent / "schema.sql"
_LEFT_OUT = ("obs.*_[0-9][0-9][0-9][0-9]w[0-9][0-9]", "public.alembic_version")
# Settings of the session, comments and pg_dump's random guard words say nothing of the schema.
_NOISE = re.compile(r"^(SET |SELECT pg_catalog\.set_config|--|\\(un)?restrict ).*\n", re.MULTILINE)


def dump(url: str) -> str:
    """Return the schema of a database in pg_dump's own order.

    Raises:
        MigrationError: pg_dump failed, with what it said.
    """
    options = [f"--exclude-table={pattern}" for pattern in _LEFT_OUT]
    command = (str(binaries() / "pg_dump"), "--schema-only", "--no-owner", *options, f"--dbname={url}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MigrationError(f"pg_dump failed: {done.stderr.strip()}")
    return re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", done.stdout)).strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(dump(sys.argv[1]))
