"""Brings a database to a revision of db/migrations. Forward only; no ini file on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from db.database import Database
from db.errors import DatabaseAway, MigrationError
from db.partitions import ensure

_FOLDER = Path(__file__).parent / "migrations"
# Two services that start together must not migrate together.
_LOCK = sqlalchemy.text("SELECT pg_advisory_lock(hashtextextended('noria.migrate', 0))")


def head() -> str:
    """Return the newest revision this code knows."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None, "the folder of revisions is empty"
    return newest


def current(url: str) -> str | None:
    """Return the revision of a database, None when it has never been migrated.

    Raises:
        DatabaseAway: the server does not answer.
    """
    with _connected(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(url: str, revision: str = "head") -> None:
    """Bring a database to a revision, and at head make the partitions of the weeks ahead.

    Safe to call from several processes at once; nothing happens when there is nothing to do.

    Raises:
        MigrationError: the database is at a revision unknown to this code, or a revision failed.
        DatabaseAway: the server does not answer.
    """
    config = _config()
    with _connected(url) as connection:
        connection.execute(_LOCK)
        connection.commit()
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, revision)
        except CommandError as error:
            raise MigrationError(
                f"the database can not be brought to revision {revision}: {error}"
            ) from error
        connection.commit()
    if revision in ("head", head()):
        with Database(url, max_size=1) as db:
            ensure(db)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _connected(url: str) -> Iterator[sqlalchemy.Connection]:
    address = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(address, poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except sqlalchemy.exc.OperationalError as error:
        raise DatabaseAway(str(error.orig)) from error
