"""Wakes a router when the registry changes. A hint only: notifications get lost, so poll the epoch too."""

from types import TracebackType
from typing import Self

import psycopg

from db.database import translated

CHANNEL = "noria_registry"


class Listener:
    """A direct connection that listens; it must not go through a transaction pooler.

    Raises DatabaseAway when the connection can not be made or is lost; make a new one then and read
    the registry again, since what happened meanwhile was not heard.
    """

    def __init__(self, url: str, *, connect_timeout_s: int = 5) -> None:
        with translated():
            self._connection = psycopg.connect(
                url, autocommit=True, connect_timeout=connect_timeout_s, application_name="noria-listen"
            )
            self._connection.execute(f"LISTEN {CHANNEL}".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change; True when there was one. Several that came together count as one."""
        with translated():
            return any(True for _ in self._connection.notifies(timeout=timeout_s, stop_after=1))

    def close(self) -> None:
        """Close the connection. A `wait` in another thread ends with DatabaseAway."""
        self._connection.close()
