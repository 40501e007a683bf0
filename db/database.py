"""One pool of connections to one Postgres, and the border where driver errors become ours.

It knows nothing of the tables. Calls block: from asyncio, use a thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeAlias

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

from db.errors import DbError, translate

Connection: TypeAlias = psycopg.Connection[DictRow]

CHECKOUT_TIMEOUT_S = 5.0
_SET_LOCAL = b"SELECT set_config(%s, %s, true)"


class Database:
    """A pool; opened at once, so the first use may still find the server away.

    Args:
        url: `postgresql://...`, any form that libpq reads.
        min_size, max_size: connections kept, connections allowed.
        timeout_s: how long a caller waits for a connection before DatabaseAway.
    """

    def __init__(
        self, url: str, *, min_size: int = 1, max_size: int = 8, timeout_s: float = CHECKOUT_TIMEOUT_S
    ) -> None:
        self.url = url
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            connection_class=psycopg.Connection[DictRow],
            kwargs={"row_factory": dict_row, "application_name": "noria"},
            min_size=min_size,
            max_size=max_size,
            timeout=timeout_s,
            # Its retries wait ever longer; a caller who comes after an outage must not inherit that.
            reconnect_timeout=timeout_s,
            check=ConnectionPool.check_connection,
            open=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; later calls raise DatabaseAway."""
        self._pool.close()

    @contextmanager
    def transaction(
        self, *, actor: str | None = None, override_reason: str | None = None
    ) -> Iterator[Connection]:
        """Lend a connection inside a transaction: committed at the end, rolled back on an error.

        `actor` and `override_reason` are what the audit rows of this transaction will say.
        """
        with translated(), self._pool.connection() as connection:
            if actor is not None:
                connection.execute(_SET_LOCAL, ("noria.actor", actor))
            if override_reason is not None:
                connection.execute(_SET_LOCAL, ("noria.override_reason", override_reason))
            yield connection

    def ping(self) -> bool:
        """Tell whether the server answers now."""
        try:
            with self.transaction() as connection:
                connection.execute(b"SELECT 1")
        except DbError:
            return False
        return True


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into those of db.errors; the cause is kept."""
    try:
        yield
    except psycopg.Error as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error
