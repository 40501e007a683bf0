"""The database of an instance: the external one of the settings, or the embedded one in the data folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from db import migrate
from db.database import Database
from db.embedded import EmbeddedPostgres
from db.errors import EmbeddedServerError
from noria.settings import Settings

_LOOK_EVERY_S = 5.0


def embedded(settings: Settings) -> EmbeddedPostgres | None:
    """The embedded server of this data folder, or None when the settings name an external one."""
    return None if settings.database.url else EmbeddedPostgres(settings.data / "postgres")


def database_url(settings: Settings) -> str:
    """URL of a running server; starts the embedded one if need be and leaves it running."""
    server = embedded(settings)
    return server.start() if server else str(settings.database.url)


def keep_database(settings: Settings, report: Callable[[str], None]) -> None:
    """Start the embedded server again whenever it is found dead; never returns."""
    server = embedded(settings)
    while True:
        time.sleep(_LOOK_EVERY_S)
        if server and not server.running():
            report("postgres: found dead, starting again")
            try:
                server.start()
            except EmbeddedServerError as error:
                report(f"postgres: {error}")


@contextmanager
def open_database(settings: Settings) -> Iterator[Database]:
    """A database with the current schema, for the length of the block.

    An embedded server that was not running before the block is stopped after it.
    """
    server = embedded(settings)
    started_here = server is not None and not server.running()
    url = database_url(settings)
    try:
        migrate.upgrade(url)
        with Database(url) as database:
            yield database
    finally:
        if server and started_here:
            server.stop()
